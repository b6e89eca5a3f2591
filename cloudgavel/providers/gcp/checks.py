"""What must be true before a run on Google Cloud: looked at one by one, with what to do about each.

Nothing is created: permissions are asked about by name.
"""

import http.client
from collections.abc import Callable, Iterable, Sequence
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from cloudgavel.documents.check import CheckLine, CheckStatus
from cloudgavel.pricing.offer import Offer
from cloudgavel.providers.failures import FailureKind
from cloudgavel.providers.gcp import validate
from cloudgavel.providers.gcp.clients import GcpClients
from cloudgavel.providers.gcp.facts import Facts, ImageNotFound
from cloudgavel.providers.gcp.failures import explain
from cloudgavel.providers.gcp.quotas import (
    Limit,
    limits_of,
    read_project_limits,
    read_region_limits,
)
from cloudgavel.providers.gcp.settings import GcpSettings
from cloudgavel.providers.gcp.startup import COMPUTE_URL
from cloudgavel.providers.gcp.translate import host_and_gpus, is_tpu_offer

SKEW_WARNING_S = 30.0
SKEW_FAILURE_S = 240.0
"""Google refuses signed tokens that are five minutes off."""
_ROLE_HINT = "give your user the role of docs/how-to/gcp.md, section 1"
COMPUTE_PERMISSIONS = (
    "compute.instances.create",
    "compute.instances.delete",
    "compute.instances.get",
    "compute.instances.list",
    "compute.instances.setLabels",
    "compute.instances.setMetadata",
    "compute.instances.setServiceAccount",
    "compute.disks.create",
    "compute.disks.setLabels",
    "compute.subnetworks.use",
    "compute.subnetworks.useExternalIp",
    "compute.zoneOperations.get",
    "compute.zoneOperations.list",
    "compute.machineTypes.list",
    "compute.acceleratorTypes.list",
    "compute.regions.get",
    "compute.projects.get",
)
TPU_PERMISSIONS = (
    "tpu.nodes.create",
    "tpu.nodes.delete",
    "tpu.nodes.get",
    "tpu.nodes.list",
    "tpu.queuedresources.create",
    "tpu.queuedresources.delete",
    "tpu.queuedresources.get",
    "tpu.queuedresources.list",
    "tpu.operations.get",
    "tpu.acceleratortypes.list",
)


def check_gcp(
    clients: GcpClients,
    *,
    settings: GcpSettings,
    offers: Iterable[Offer],
    now_s: Callable[[], float],
) -> list[CheckLine]:
    """Look at credentials and clock, permissions, image and zones, then at each region's quotas.

    ``offers`` are those that a run might rent. Without credentials there is one failed line.
    """
    wanted = [
        offer
        for offer in offers
        if offer.provider == "gcp"
        and offer.region in settings.regions
        and validate.unrentable(offer) is None
    ]
    try:
        everywhere = read_project_limits(clients, settings.project)
    except Exception as error:
        return [_credentials_failed(error, settings)]
    lines = [
        _line(None, "credentials", CheckStatus.PASSED, f"project {settings.project}"),
        _clock(clients, now_s),
    ]
    lines += _permissions(clients, settings, wanted)
    if settings.service_account is None:
        lines.append(
            _line(
                None,
                "service account",
                CheckStatus.WARNING,
                "machines act as nobody: they cannot use the store",
                "set CLOUDGAVEL_GCP_SERVICE_ACCOUNT; see docs/how-to/gcp.md, section 2",
            )
        )
    lines += _facts(clients, settings, wanted, now_s)
    for region in settings.regions:
        here = [offer for offer in wanted if offer.region == region]
        lines += _quotas(clients, settings, region, here, everywhere)
    return lines


def _credentials_failed(error: BaseException, settings: GcpSettings) -> CheckLine:
    explained = explain(error)
    if explained.kind is FailureKind.UNREACHABLE:
        hint = "check this machine's way to the internet"
    elif explained.code in ("accessNotConfigured", "SERVICE_DISABLED"):
        hint = f"gcloud services enable compute.googleapis.com --project {settings.project}"
    elif explained.kind is FailureKind.CREDENTIALS:
        hint = "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS"
    else:
        hint = f"is {settings.project} the project's id (not its name or number)?"
    return _line(None, "credentials", CheckStatus.FAILED, explained.message, hint)


def _clock(clients: GcpClients, now_s: Callable[[], float]) -> CheckLine:
    before_s = now_s()
    told_s = _date_of(clients.endpoint or COMPUTE_URL)
    if told_s is None:
        return _line(None, "clock", CheckStatus.WARNING, "Google did not say what time it is")
    skew_s = (before_s + now_s()) / 2 - told_s
    status = CheckStatus.PASSED
    if abs(skew_s) > SKEW_WARNING_S:
        status = CheckStatus.WARNING if abs(skew_s) <= SKEW_FAILURE_S else CheckStatus.FAILED
    way = "ahead of" if skew_s > 0 else "behind"
    hint = None if status is CheckStatus.PASSED else "set this machine's clock (NTP)"
    return _line(None, "clock", status, f"{abs(skew_s):.0f} s {way} Google", hint)


def _date_of(url: str) -> float | None:
    """Ask a server for the time, which every answer tells, an error too."""
    parts = urlsplit(url)
    kind = http.client.HTTPConnection if parts.scheme == "http" else http.client.HTTPSConnection
    connection = kind(parts.hostname or "", parts.port, timeout=10)
    try:
        connection.request("GET", "/")
        return parsedate_to_datetime(connection.getresponse().getheader("Date") or "").timestamp()
    except (OSError, http.client.HTTPException, TypeError, ValueError):
        return None
    finally:
        connection.close()


def _permissions(
    clients: GcpClients, settings: GcpSettings, offers: Sequence[Offer]
) -> list[CheckLine]:
    asked = list(COMPUTE_PERMISSIONS)
    if any(is_tpu_offer(offer) for offer in offers):
        asked += TPU_PERMISSIONS
    try:
        granted = clients.granted(settings.project, asked)
    except Exception as error:
        return [
            _line(
                None,
                "permission",
                CheckStatus.WARNING,
                f"cannot be asked about: {explain(error).message}",
                "gcloud services enable cloudresourcemanager.googleapis.com "
                f"--project {settings.project}",
            )
        ]
    lines = [
        _line(None, "permission", CheckStatus.FAILED, f"{each} denied", _ROLE_HINT)
        for each in asked
        if each not in granted
    ]
    if len(lines) < len(asked):
        count = len(asked) - len(lines)
        lines.append(_line(None, "permission", CheckStatus.PASSED, f"{count} of {len(asked)}"))
    return lines


def _facts(
    clients: GcpClients,
    settings: GcpSettings,
    offers: Sequence[Offer],
    now_s: Callable[[], float],
) -> list[CheckLine]:
    machines = [offer for offer in offers if not is_tpu_offer(offer)]
    facts = Facts(
        clients,
        settings=settings,
        machine_types={host_and_gpus(offer.instance_type)[0] for offer in machines},
        tpu_zones={offer.zone for offer in offers if is_tpu_offer(offer)},
        now_s=now_s,
    )
    lines = []
    if machines:
        try:
            image = facts.image()
            lines.append(_line(None, "image", CheckStatus.PASSED, image.link))
        except ImageNotFound as error:
            hint = "set CLOUDGAVEL_GCP_IMAGE_FAMILY"
            lines.append(_line(None, "image", CheckStatus.FAILED, str(error), hint))
        except Exception as error:
            lines.append(_line(None, "image", CheckStatus.FAILED, explain(error).message))
    try:
        zones = facts.zones()
    except Exception as error:
        explained = explain(error)
        hint = "gcloud services enable compute.googleapis.com tpu.googleapis.com"
        lines.append(_line(None, "zones", CheckStatus.FAILED, explained.message, hint))
        return lines
    for region in settings.regions:
        here = [offer for offer in offers if offer.region == region]
        sold = [
            offer
            for offer in here
            if offer.zone in zones and validate.not_sold(offer, zones[offer.zone]) is None
        ]
        status = CheckStatus.PASSED if sold else CheckStatus.WARNING
        lines.append(
            _line(region, "zones", status, f"{len(sold)} of {len(here)} offers are sold there now")
        )
    return lines


def _quotas(
    clients: GcpClients,
    settings: GcpSettings,
    region: str,
    offers: Sequence[Offer],
    everywhere: Sequence[Limit],
) -> list[CheckLine]:
    try:
        limits = [*read_region_limits(clients, settings.project, region), *everywhere]
    except Exception as error:
        explained = explain(error)
        allow = "allow compute.regions.get, so that regions without quota are skipped"
        return [
            _line(region, "quota", CheckStatus.WARNING, f"not read: {explained.message}", allow)
        ]
    smallest: dict[str, float] = {}
    by_metric: dict[str, Limit] = {}
    unknown: set[str] = set()
    for offer in offers:
        found = limits_of(limits, offer)
        if not any("GPUS" in limit.metric and limit.region for limit, _ in found):
            unknown.add(f"{offer.accelerator} {offer.capacity_type.value}")
        for limit, units in found:
            by_metric[limit.name] = limit
            smallest[limit.name] = min(units, smallest.get(limit.name, units))
    lines = []
    for name, limit in sorted(by_metric.items()):
        enough = limit.most >= smallest[name]
        status = CheckStatus.PASSED if enough else CheckStatus.WARNING
        hint: str | None = None
        if not enough:
            hint = (
                f"ask Google for at least {smallest[name]:g}: IAM & Admin > Quotas, "
                f"{limit.metric}, {limit.region or 'global'}"
            )
        where = "" if limit.region else " over all regions"
        lines.append(_line(region, "quota", status, f"{limit.most:g} {limit.metric}{where}", hint))
    lines += [
        _line(region, "quota", CheckStatus.WARNING, f"no limit is told for {kind}")
        for kind in sorted(unknown)
    ]
    return lines


def _line(
    region: str | None, subject: str, status: CheckStatus, detail: str, hint: str | None = None
) -> CheckLine:
    return CheckLine(
        provider="gcp", region=region, subject=subject, status=status, detail=detail, hint=hint
    )
