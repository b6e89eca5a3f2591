"""Finding every machine of a run by its label, in every zone, without the database; ending them."""

from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from cloudgavel.providers.bundle import AgentSource
from cloudgavel.providers.gcp.clients import GcpClients
from cloudgavel.providers.gcp.compute import Listing, Machines
from cloudgavel.providers.gcp.failures import call_failed, is_switched_off
from cloudgavel.providers.gcp.settings import GcpSettings
from cloudgavel.providers.gcp.tpu import Slices
from cloudgavel.providers.gcp.translate import GcpMachine


@dataclass(frozen=True, kw_only=True, slots=True)
class PlaceSilent:
    """A kind of machine or a zone that could not be searched, and why: it may hold machines."""

    place: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What a search found, and where it could not look.

    Everything that still exists is found, stopped machines (their disks cost), preempted slices
    (they hold names and quota) and what waits in a queue included.
    """

    machines: tuple[GcpMachine, ...]
    silent: tuple[PlaceSilent, ...]


def find_tagged(
    clients: GcpClients,
    project: str,
    zones: Collection[str] | None = None,
    run_id: str | None = None,
) -> Found:
    """Return every machine and slice with our label, by zone and name.

    ``zones`` ``None`` = all of the project's, in one listing; ``run_id`` ``None`` = of every run.
    A project without the TPU interface enabled has no slices; any other silence is told.
    """
    machines, slices = _drivers(clients, project)
    kinds = {"machines": machines.of_run, "TPU slices": slices.of_run}
    with ThreadPoolExecutor(max_workers=len(kinds)) as pool:
        futures = {kind: pool.submit(search, run_id, zones) for kind, search in kinds.items()}
    found: list[GcpMachine] = []
    silent: list[PlaceSilent] = []
    for kind, future in futures.items():
        error = future.exception()
        if error is not None:
            if kind == "TPU slices" and is_switched_off(error):
                continue
            message = call_failed(error, f"list the {kind} of project {project}").message
            silent.append(PlaceSilent(place=kind, message=message))
            continue
        listing: Listing = future.result()
        found += listing.machines
        silent += [
            PlaceSilent(place=zone, message=f"{zone} gave no answer about its {kind}")
            for zone in listing.silent_zones
            if zones is None or zone in zones
        ]
    found.sort(key=lambda each: (each.zone, each.instance_id))
    return Found(machines=tuple(found), silent=tuple(silent))


def end_tagged(clients: GcpClients, project: str, machines: Iterable[GcpMachine]) -> dict[str, str]:
    """Ask for the end of each; return what could not be asked: name -> reason.

    Machines already gone are fine. Only a later ``find_tagged`` without them confirms the end.
    """
    vms, slices = _drivers(clients, project)
    failed: dict[str, str] = {}

    def end(each: GcpMachine) -> None:
        try:
            if each.is_tpu:
                slices.delete(each.zone, each.instance_id)
            else:
                vms.delete(each.zone, each.instance_id)
        except Exception as error:
            failed[each.instance_id] = call_failed(error, f"end {each.instance_id}").message

    doomed = list(machines)
    with ThreadPoolExecutor(max_workers=max(1, min(len(doomed), 20))) as pool:
        list(pool.map(end, doomed))
    return dict(sorted(failed.items()))


def _drivers(clients: GcpClients, project: str) -> tuple[Machines, Slices]:
    settings = GcpSettings(
        project=project,
        regions=(),
        store_url="",
        agent=AgentSource(url="", sha256=""),
        # What waits in a queue is to be found too.
        tpu_queue_wait_s=0.0,
    )

    def never(_: float) -> None:
        raise AssertionError("searching and ending wait for nothing")

    return (
        Machines(clients, settings=settings, pause=never),
        Slices(clients, settings=settings, pause=never),
    )
