"""``cloudgavel check``: whether a run could start; every line passes or says what to do."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from cloudgavel.cli.cloud_options import PROJECT, regions_by_cloud, require_project
from cloudgavel.cli.options import chosen_output, output_options
from cloudgavel.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from cloudgavel.documents.check import CheckLine
    from cloudgavel.jobs.spec import CloudSpec
    from cloudgavel.objects.store import ObjectStore
    from cloudgavel.pricing.offer import Offer


@click.command(
    "check", help="Whether a run could start: credentials, quotas, store. Rents nothing."
)
@click.argument("file", metavar="[FILE]", required=False)
@click.option(
    "--provider", "providers", multiple=True, help="Look at this cloud, without a file; repeatable."
)
@click.option("--region", "regions", multiple=True, help="Only this region; repeatable.")
@PROJECT
@click.option("--store", "store_url", metavar="URL", help="The run's store; overrides the file's.")
@output_options("text", "json")
def check(
    file: str | None,
    providers: tuple[str, ...],
    regions: tuple[str, ...],
    project: str | None,
    store_url: str | None,
    output: str,
    as_json: bool,
) -> int:
    """Look at the clouds and the store of a jobs.yaml, or at those named.

    Exit code 4 when a cloud refuses who we are, 1 when anything else failed.
    """
    from cloudgavel.cli.streams import answer, answer_json, text_width
    from cloudgavel.documents.check import CheckDocument, CheckLine, CheckStatus
    from cloudgavel.documents.encode import iso_utc
    from cloudgavel.pricing.bundled import bundled_catalog
    from cloudgavel.runtime.real_clock import now_s
    from cloudgavel.views.check import check_text

    clouds, store_url, accelerators = _asked(file, providers, store_url)
    offers = bundled_catalog().search(accelerators=accelerators)
    checkers = [_checker(cloud.provider) for cloud in clouds]
    regions_of = regions_by_cloud(regions, [cloud.provider for cloud in clouds])
    lines: list[CheckLine] = []
    for cloud, checker in zip(clouds, checkers, strict=True):
        if cloud.provider in regions_of:
            chosen = replace(
                cloud,
                regions=regions_of[cloud.provider] or cloud.regions,
                project=cloud.project or project,
            )
            lines += checker(chosen, offers)
    if store_url is not None:
        from cloudgavel.objects.open import open_store

        lines += check_store(open_store(store_url))
        lines += _check_across(store_url, [cloud.provider for cloud in clouds])
    if not clouds and store_url is None:
        played = "played on this machine, as is the store: no account"
        lines.append(
            CheckLine(
                provider="rehearsal",
                region=None,
                subject="machines",
                status=CheckStatus.PASSED,
                detail=played,
            )
        )
    document = CheckDocument(now=iso_utc(now_s()), lines=tuple(lines))
    if chosen_output(output, as_json) == "json":
        answer_json(document.to_json())
    else:
        answer(check_text(document, width=text_width()))
    if any(line.subject == "credentials" for line in document.failed):
        return ExitCode.CREDENTIALS
    return ExitCode.FAILED if document.failed else ExitCode.DONE


def check_store(store: "ObjectStore") -> "list[CheckLine]":
    """Write, refuse to overwrite, compare-and-set, list, read and delete one small object."""
    import uuid

    from cloudgavel.documents.check import CheckLine, CheckStatus
    from cloudgavel.errors import CloudgavelError

    def line(status: CheckStatus, detail: str, hint: str | None = None) -> CheckLine:
        return CheckLine(
            provider="store", region=None, subject="store", status=status, detail=detail, hint=hint
        )

    key = f"check/{uuid.uuid4().hex}"
    try:
        first = store.put_if_absent(key, b"1")
        second = store.put_if_absent(key, b"2")
        seen = store.get_versioned(key)
        swapped = store.put_if_version(key, b"3", seen.version)
        stale = store.put_if_version(key, b"4", seen.version)
        listed = [each.key for each in store.list("check/")]
        store.delete(key)
    except CloudgavelError as error:
        hint = error.hints[0] if error.hints else None
        return [line(CheckStatus.FAILED, f"{store.url}: {error.message}", hint)]
    if not (first and not second and seen.data == b"1" and swapped and not stale):
        return [
            line(
                CheckStatus.FAILED,
                f"{store.url} does not keep conditional writes",
                "checkpoints need a store that does: S3, Google Cloud Storage, or a directory",
            )
        ]
    if key not in listed:
        return [line(CheckStatus.FAILED, f"{store.url} does not list what was written")]
    return [line(CheckStatus.PASSED, f"{store.url} reads, writes, lists and deletes")]


Checker = Callable[["CloudSpec", "Sequence[Offer]"], "list[CheckLine]"]


def _checker(provider: str) -> Checker:
    checkers: dict[str, Checker] = {"aws": _check_aws, "gcp": _check_gcp}
    if provider not in checkers:
        raise UsageError(
            f"`{provider}` cannot be checked", hints=[f"it knows {', '.join(sorted(checkers))}"]
        )
    return checkers[provider]


def _check_aws(cloud: "CloudSpec", offers: "Sequence[Offer]") -> "list[CheckLine]":
    from cloudgavel.providers.aws.assembly import INSTANCE_PROFILE_VARIABLE
    from cloudgavel.providers.aws.checks import check_aws
    from cloudgavel.providers.aws.clients import AwsClients
    from cloudgavel.providers.aws.regions import check_regions
    from cloudgavel.runtime.real_clock import now_s

    chosen = cloud.regions
    if not chosen:
        chosen = tuple(sorted({offer.region for offer in offers if offer.provider == "aws"}))
    check_regions(chosen)
    return check_aws(
        AwsClients(),
        regions=chosen,
        offers=offers,
        now_s=now_s,
        instance_profile=os.environ.get(INSTANCE_PROFILE_VARIABLE),
        interruption_queues=cloud.interruption_queues,
    )


def _check_gcp(cloud: "CloudSpec", offers: "Sequence[Offer]") -> "list[CheckLine]":
    from cloudgavel.pricing.bundled import bundled_catalog
    from cloudgavel.providers.bundle import AgentSource
    from cloudgavel.providers.gcp.assembly import gcp_settings
    from cloudgavel.providers.gcp.checks import check_gcp
    from cloudgavel.providers.gcp.clients import GcpClients
    from cloudgavel.runtime.real_clock import now_s

    settings = gcp_settings(
        replace(cloud, project=require_project(cloud.project)),
        catalog=bundled_catalog(),
        # The store is looked at on its own; here only project, regions and image count.
        store_url="gs://not-asked",
        agent=AgentSource(url="", sha256=""),
        environment=os.environ,
    )
    return check_gcp(GcpClients(), settings=settings, offers=offers, now_s=now_s)


def _check_across(store_url: str, clouds: "Sequence[str]") -> "list[CheckLine]":
    """Look at the ways by which machines of the other cloud than the store's reach it."""
    from cloudgavel.documents.check import CheckLine, CheckStatus
    from cloudgavel.providers.aws.clients import AwsClients
    from cloudgavel.providers.gcp.clients import GcpClients
    from cloudgavel.providers.store_checks import check_of_store

    try:
        look = check_of_store(store_url, clouds, os.environ)
    except UsageError as error:
        said = CheckLine(
            provider="store",
            region=None,
            subject="store",
            status=CheckStatus.FAILED,
            detail=error.message,
            hint=error.hints[0] if error.hints else None,
        )
        return [said]
    return [] if look is None else look(AwsClients(), GcpClients())


def _asked(
    file: str | None, providers: tuple[str, ...], store_url: str | None
) -> tuple[list["CloudSpec"], str | None, set[str] | None]:
    """Return the clouds, the store and the accelerators to look at; ``None`` = no such filter."""
    from cloudgavel.cli.spec_file import load_run
    from cloudgavel.jobs.spec import CloudSpec

    clouds: list[CloudSpec] = []
    accelerators: set[str] | None = None
    if file is not None:
        run = load_run(file)
        clouds = list(run.clouds)
        store_url = store_url or run.store
        accelerators = {each.accelerator for job in run.jobs for each in job.accelerators}
    if providers:
        named = {cloud.provider: cloud for cloud in clouds}
        clouds = [named.get(name, CloudSpec(provider=name)) for name in providers]
    if not clouds and store_url is None and file is None:
        raise UsageError(
            "there is nothing to check",
            hints=["name a jobs.yaml, or a cloud: `cloudgavel check --provider aws`"],
        )
    return clouds, store_url, accelerators
