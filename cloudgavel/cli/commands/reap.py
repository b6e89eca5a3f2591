"""``cloudgavel reap``: end every machine that carries our tag; needs no run and no database."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import click

from cloudgavel.cli.cloud_options import PROJECT, regions_by_cloud, require_project
from cloudgavel.cli.options import chosen_output, output_options
from cloudgavel.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from cloudgavel.providers.aws.clients import AwsClients
    from cloudgavel.providers.gcp.clients import GcpClients
    from cloudgavel.providers.gcp.translate import GcpMachine

LOOK_AGAIN_S = 5.0
LOOKS = 60
"""Looks after the ends were asked for; a large machine takes some minutes to end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundMachine:
    """One machine of ours, in words."""

    provider: str
    where: str
    machine_id: str
    kind: str
    run_id: str
    state: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """What one look found, and the places that did not answer."""

    machines: tuple[FoundMachine, ...]
    silent: tuple[str, ...]


class Sweeper(Protocol):
    """Finds and ends the machines of one cloud by their tag."""

    def find(self) -> Search:
        """Look everywhere; a place without an answer is told."""
        ...

    def end(self, machines: Sequence[FoundMachine]) -> Mapping[str, str]:
        """Ask for the ends; return what could not be asked: id -> reason."""
        ...


@click.command("reap", help="End every machine that carries our tag, whatever became of its run.")
@click.option(
    "--provider",
    "providers",
    multiple=True,
    help="aws or gcp; repeatable.  [default: aws, and gcp when a project is given]",
)
@click.option("--region", "regions", multiple=True, help="Only this region; repeatable.")
@PROJECT
@click.option("--run", "run_id", metavar="ID", help="Only machines of this run.")
@output_options("text", "json")
@click.option("--yes", is_flag=True, help="Do not ask.")
def reap(
    providers: tuple[str, ...],
    regions: tuple[str, ...],
    project: str | None,
    run_id: str | None,
    output: str,
    as_json: bool,
    yes: bool,
) -> int:
    """Find our machines by tag in every enabled region and zone, end them, and look again.

    Jobs on them are not saved: `cloudgavel down` does that. Exit code 6 when a machine is left, or
    a region did not answer.
    """
    import time

    from cloudgavel.cli.streams import note

    chosen = tuple(dict.fromkeys(providers))
    if not chosen:
        chosen = ("aws", "gcp") if project else ("aws",)
        if not project:
            note("gcp is not searched: no --project")
    return sweep(
        [
            _sweeper(name, mine, project, run_id)
            for name, mine in regions_by_cloud(regions, chosen).items()
        ],
        as_json=chosen_output(output, as_json) == "json",
        yes=yes,
        sleep=time.sleep,
    )


def sweep(
    sweepers: Sequence[Sweeper], *, as_json: bool, yes: bool, sleep: Callable[[float], None]
) -> int:
    """Find, ask, end, look again until all are gone or patience is over; tell what is left."""
    from cloudgavel.cli.streams import note

    found = {id(each): each.find() for each in sweepers}
    machines = [machine for search in found.values() for machine in search.machines]
    for place in (place for search in found.values() for place in search.silent):
        note(f"no answer: {place}")
    for machine in machines:
        note(
            f"{machine.provider} {machine.where}  {machine.machine_id}  {machine.kind}  "
            f"{machine.state}  run {machine.run_id or 'unknown'}"
        )
    failed: dict[str, str] = {}
    left = machines
    if machines:
        if not yes and not _agreed(len(machines)):
            note("Nothing was ended.")
            return ExitCode.FAILED
        for each in sweepers:
            failed |= each.end(found[id(each)].machines)
        for reason in failed.values():
            note(reason)
        for look in range(LOOKS):
            found = {id(each): each.find() for each in sweepers}
            left = [machine for search in found.values() for machine in search.machines]
            # One that could not be asked for its end is not waited for.
            if not [each for each in left if each.machine_id not in failed] or look == LOOKS - 1:
                break
            sleep(LOOK_AGAIN_S)
    silent = [place for search in found.values() for place in search.silent]
    _tell(machines, left, silent, as_json=as_json)
    return ExitCode.PARTLY_APPLIED if left or silent else ExitCode.DONE


def _tell(
    machines: Sequence[FoundMachine],
    left: Sequence[FoundMachine],
    silent: Sequence[str],
    *,
    as_json: bool,
) -> None:
    from cloudgavel.cli.streams import answer, answer_json
    from cloudgavel.documents.encode import as_json as plain

    if as_json:
        answer_json(
            {
                "schema": "cloudgavel/reap",
                "schema_version": 1,
                "found": plain(list(machines)),
                "left": plain(list(left)),
                "silent": list(silent),
            }
        )
        return
    gone = len(machines) - len(left)
    if not machines and not silent:
        answer("no machine of ours is left")
    else:
        answer(f"{len(machines)} found, {gone} ended, {len(left)} left")
    for machine in left:
        answer(f"  left: {machine.provider} {machine.where} {machine.machine_id}")
    for place in silent:
        answer(f"  no answer: {place}")


def _agreed(count: int) -> bool:
    import sys

    if not sys.stdin.isatty():
        raise UsageError("nobody can be asked", hints=["agree beforehand with --yes"])
    return click.confirm(f"End these {count} machines? Their jobs are not saved.", err=True)


def _sweeper(
    provider: str, regions: Sequence[str], project: str | None, run_id: str | None
) -> Sweeper:
    if provider == "aws":
        from cloudgavel.providers.aws.clients import AwsClients
        from cloudgavel.providers.aws.regions import check_regions

        if regions:
            check_regions(regions)
        return AwsSweeper(AwsClients(), regions=regions, run_id=run_id)
    if provider == "gcp":
        from cloudgavel.pricing.bundled import bundled_catalog
        from cloudgavel.providers.gcp import assembly
        from cloudgavel.providers.gcp.clients import GcpClients

        if regions:
            assembly.check_regions(regions, bundled_catalog())
        return GcpSweeper(
            GcpClients(), project=require_project(project), regions=regions, run_id=run_id
        )
    raise UsageError(f"`{provider}` cannot be searched", hints=["it knows aws and gcp"])


class AwsSweeper:
    """Implements ``Sweeper`` on EC2."""

    def __init__(
        self, clients: "AwsClients", *, regions: Sequence[str], run_id: str | None
    ) -> None:
        """Without ``regions``: every enabled one."""
        self._clients = clients
        self._regions = tuple(regions) or None
        self._run_id = run_id

    def find(self) -> Search:
        """Look in every region; ``CredentialsError`` when AWS refuses who we are."""
        from cloudgavel.errors import CloudgavelError, CredentialsError
        from cloudgavel.providers.aws.sweep import find_tagged
        from cloudgavel.providers.failures import CallFailed, FailureKind

        try:
            found = find_tagged(self._clients, self._regions, self._run_id)
        except CallFailed as error:
            if error.kind is FailureKind.CREDENTIALS:
                raise CredentialsError(
                    error.message, hints=["see `cloudgavel check --provider aws`"]
                ) from error
            raise CloudgavelError(error.message) from error
        return Search(
            machines=tuple(
                FoundMachine(
                    provider="aws",
                    where=each.region,
                    machine_id=each.instance_id,
                    kind=f"{each.instance_type} {each.capacity_type.value}",
                    run_id=each.run_id,
                    state=each.state.value,
                )
                for each in found.instances
            ),
            silent=tuple(each.message for each in found.silent),
        )

    def end(self, machines: Sequence[FoundMachine]) -> Mapping[str, str]:
        """Ask for the ends, several at a time."""
        from cloudgavel.providers.aws.sweep import end_instances

        return end_instances(self._clients, [(each.where, each.machine_id) for each in machines])


class GcpSweeper:
    """Implements ``Sweeper`` on Compute Engine and Cloud TPU."""

    def __init__(
        self, clients: "GcpClients", *, project: str, regions: Sequence[str], run_id: str | None
    ) -> None:
        """Without ``regions``: every zone of the project."""
        self._clients = clients
        self._project = project
        self._regions = tuple(regions)
        self._run_id = run_id
        self._seen: dict[tuple[str, str], GcpMachine] = {}

    def find(self) -> Search:
        """Look in every zone; ``CredentialsError`` when Google refuses who we are."""
        from cloudgavel.providers.gcp.sweep import find_tagged

        found = find_tagged(self._clients, self._project, run_id=self._run_id)
        if found.silent and not found.machines:
            self._refuse_nobody()
        machines = [each for each in found.machines if self._is_asked(each.zone)]
        self._seen |= {(each.zone, each.instance_id): each for each in machines}
        return Search(
            machines=tuple(
                FoundMachine(
                    provider="gcp",
                    where=each.zone,
                    machine_id=each.instance_id,
                    kind=f"{each.machine_type} {each.capacity_type.value}",
                    run_id=each.run_id,
                    state=each.status.lower(),
                )
                for each in machines
            ),
            # What is silent as a whole is not named by a zone.
            silent=tuple(
                each.message
                for each in found.silent
                if "-" not in each.place or self._is_asked(each.place)
            ),
        )

    def end(self, machines: Sequence[FoundMachine]) -> Mapping[str, str]:
        """Ask for the ends, several at a time."""
        from cloudgavel.providers.gcp.sweep import end_tagged

        doomed = [self._seen[each.where, each.machine_id] for each in machines]
        return end_tagged(self._clients, self._project, doomed)

    def _is_asked(self, zone: str) -> bool:
        return not self._regions or zone.rpartition("-")[0] in self._regions

    def _refuse_nobody(self) -> None:
        from cloudgavel.errors import CredentialsError
        from cloudgavel.providers.failures import FailureKind
        from cloudgavel.providers.gcp.failures import explain

        try:
            self._clients.call("compute.projects", "get", {"project": self._project})
        except Exception as error:
            explained = explain(error)
            if explained.kind is FailureKind.CREDENTIALS:
                raise CredentialsError(
                    explained.message, hints=["see `cloudgavel check --provider gcp`"]
                ) from error
