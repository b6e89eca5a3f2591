"""The controller process: ``python -m cloudgavel.runtime.controller --state DIR --run NAME``.

It outlives the terminal that started it. ``kill -9`` at any moment loses nothing: the next one
finishes what was begun (``docs/design/runtime.md``). SIGTERM makes it leave after the step in
progress, with everything running.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudgavel.errors import CloudgavelError, ExitCode, UsageError
from cloudgavel.jobs.spec import RunSpec
from cloudgavel.objects.open import open_store
from cloudgavel.pricing.bundled import bundled_catalog
from cloudgavel.pricing.catalog import Catalog
from cloudgavel.providers.with_disks import WithDisks
from cloudgavel.runtime.assemble import bind_policy, disk_sizes, rehearsal_market, rehearsal_offers
from cloudgavel.runtime.begin import controller_is_alive
from cloudgavel.runtime.cloud_world import POOL_SIZE
from cloudgavel.runtime.directory import RunDirectory
from cloudgavel.runtime.drivers import RealTimeDriver, VirtualDriver
from cloudgavel.runtime.heartbeat import Heartbeat
from cloudgavel.runtime.loop import Loop, Surroundings
from cloudgavel.runtime.notify import Notifier, left_alone
from cloudgavel.runtime.price_cache import catalog_of_run
from cloudgavel.runtime.real_clock import RealClock
from cloudgavel.runtime.requests import events_of_request
from cloudgavel.runtime.settings import LoopSettings
from cloudgavel.store import events as ev
from cloudgavel.store.database import Database, LeaseLostError
from cloudgavel.store.fold import fold
from cloudgavel.store.records import RunState

if TYPE_CHECKING:
    from cloudgavel.providers.local.world import RehearsalWorld

START_WITHIN_S = 60.0
_AGENT_LEASE_S = 120.0
"""Real seconds that agents of a rehearsal wait for a controller before they save and end."""


def run_controller(
    directory: RunDirectory,
    *,
    environment: Mapping[str, str] | None = None,
    clients: Mapping[str, Any] | None = None,
) -> RunState:
    """Control the run in this process until it ends or SIGTERM comes; returns what is known then.

    ``environment``: of a rehearsal's agents, and the clouds' settings and secrets; ``None`` = this
    process's. ``clients`` by cloud replace those of the environment (mocked clouds). Raises
    ``ControllerActiveError`` when another controller is alive.
    """
    clock = RealClock()
    database = directory.open_database()
    holder, host = uuid.uuid4().hex, socket.gethostname()
    try:
        database.take_lease(holder=holder, pid=os.getpid(), host=host, now_s=clock.now_s())
        state = fold(event for _, event in database.read())
        if state.spec is None:
            raise UsageError(f"there is no run in {directory.root}")
        if state.ended is not None:
            return state
        database.append(
            [ev.ControllerStarted(at_s=state.at_s, holder=holder, pid=os.getpid(), host=host)]
        )
        state, ended = _control(directory, database, state, state.spec, clock, environment, clients)
        if not ended:
            database.append(
                [ev.ControllerEnded(at_s=state.at_s, holder=holder, reason="told to leave")]
            )
        return state
    finally:
        database.release_lease()
        database.close()


def require_rentable(run: RunSpec, environment: Mapping[str, str]) -> None:
    """Refuse with ``UsageError`` a run whose machines on clouds could not work as it is set up."""
    from cloudgavel.runtime.cloud_world import check_clouds

    try:
        check_clouds(run, catalog=bundled_catalog(), environment=environment)
    except UsageError as error:
        raise UsageError(
            f"{error.message}; nothing was started", facts=error.facts, hints=error.hints
        ) from error


def _control(
    directory: RunDirectory,
    database: Database,
    state: RunState,
    run: RunSpec,
    clock: RealClock,
    environment: Mapping[str, str] | None,
    clients: Mapping[str, Any] | None,
) -> tuple[RunState, bool]:
    store_url = directory.store_url(run.store)
    # A controller is a process of its own: what it was started with is its environment.
    given = os.environ if environment is None else environment  # noqa: TID251
    catalog = catalog_of_run(directory.prices_path, given, note=_tell_note)
    if run.clouds:
        with ThreadPoolExecutor(POOL_SIZE) as pool:
            loop = _rented(database, run, store_url, catalog, clock, given, clients, pool)
            return _drive(database, loop, store_url, clock, None)
    world, loop = _rehearsed(
        directory, database, state, run, store_url, catalog, clock, environment, given
    )
    return _drive(database, loop, store_url, clock, world)


def _rented(
    database: Database,
    run: RunSpec,
    store_url: str,
    catalog: Catalog,
    clock: RealClock,
    environment: Mapping[str, str],
    clients: Mapping[str, Any] | None,
    pool: Executor,
) -> Loop:
    """Return the loop of a run on clouds, in real time."""
    from cloudgavel.policies.registry import policy_of_run
    from cloudgavel.runtime.cloud_world import open_clouds

    require_rentable(run, environment)
    world = open_clouds(
        run,
        store=open_store(store_url),
        catalog=catalog,
        environment=environment,
        now_s=clock.now_s,
        clients=clients,
    )
    return Loop(
        Surroundings(
            log=database,
            provider=WithDisks(
                world.provider, known=catalog.offers, gib_by_provider=disk_sizes(environment)
            ),
            channel=world.channel,
            decide=bind_policy(policy_of_run(run)),
            settings=LoopSettings(secrets=world.secrets),
            pool=pool,
        )
    )


def _rehearsed(
    directory: RunDirectory,
    database: Database,
    state: RunState,
    run: RunSpec,
    store_url: str,
    catalog: Catalog,
    clock: RealClock,
    environment: Mapping[str, str] | None,
    given: Mapping[str, str],
) -> "tuple[RehearsalWorld, Loop]":
    """Return the world of a rehearsal, in virtual time, and its loop."""
    from cloudgavel.policies.registry import policy_of_run
    from cloudgavel.providers.local.world import RehearsalWorld

    world = RehearsalWorld.open(
        directory.rehearsal_path,
        run_id=state.run_id,
        store_url=store_url,
        offers=rehearsal_offers(run, catalog, gib_by_provider=disk_sizes(given)),
        market=rehearsal_market(run, state.created_at_s),
        start_at_s=state.created_at_s,
        agent_command=(sys.executable, "-m", "cloudgavel.agent"),
        clock=clock,
        environment=environment,
    )
    loop = Loop(
        Surroundings(
            log=database,
            provider=world.provider,
            channel=world.channel,
            decide=bind_policy(policy_of_run(run)),
            settings=LoopSettings(poll_s=None, agent_silence_s=None, agent_lease_s=_AGENT_LEASE_S),
            paced=True,
        )
    )
    return world, loop


def _drive(
    database: Database,
    loop: Loop,
    store_url: str,
    clock: RealClock,
    world: "RehearsalWorld | None",
) -> tuple[RunState, bool]:
    """Step the loop until the run ends or a signal comes; ``world`` owns time in a rehearsal."""
    heartbeat = Heartbeat(
        clock=clock, database=database, store=open_store(store_url), note=_tell_note
    )

    def take_requests(now_s: float) -> bool:
        requests = database.open_requests()
        for request in requests:
            loop.record(*events_of_request(request.kind, request.body, loop.state, now_s))
            database.mark_taken(request.request_id)
        return bool(requests)

    spec = loop.state.spec
    notifier = Notifier(() if spec is None else spec.notify, note=_tell_note)

    def after_step() -> None:
        _tell_notes(loop)
        if told := notifier.delivered(loop.state.at_s):
            loop.record(*told)
        notifier.tell(loop.state)

    driver = RealTimeDriver(
        loop,
        clock=clock,
        heartbeat=heartbeat,
        before_step=take_requests,
        after_step=after_step,
        virtual=None if world is None else VirtualDriver(loop, world),
        pace=world,
    )
    before = {
        number: signal.signal(number, lambda *_: driver.request_stop())
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    why: str | None = "an error"
    try:
        heartbeat()
        ended = driver.run()
        why = "it was told to"
    except LeaseLostError:
        why = None  # The run is another controller's.
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if why is not None and (left := left_alone(loop.state, why)) is not None:
            notifier.send(left, loop.state)
        notifier.close()
    if not ended and (told := notifier.delivered(loop.state.at_s)):
        loop.record(*told)
    return loop.state, ended


def _tell_notes(loop: Loop) -> None:
    for note in loop.drain_notes():
        _tell_note(note)


def _tell_note(note: str) -> None:
    sys.stderr.write(f"{note}\n")
    sys.stderr.flush()


def start_controller(
    directory: RunDirectory, *, environment: Mapping[str, str] | None = None
) -> int:
    """Start the controller process, detached from this terminal; return its pid.

    Returns when it holds the run's lease (or has ended the run already); at once, with the pid of
    the one that is there, when the run has a living controller. ``CloudgavelError`` with the end of
    its log when it ends before that.
    """
    alive = _living_controller(directory)
    if alive is not None:
        return alive
    directory.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    command = [
        sys.executable, "-m", "cloudgavel.runtime.controller",
        "--state", str(directory.state_directory), "--run", directory.name,
    ]  # fmt: skip
    with directory.log_path.open("ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=None if environment is None else dict(environment),
        )
    database = directory.open_database()
    try:
        for _ in range(int(START_WITHIN_S / 0.05)):
            lease = database.lease()
            if lease is not None and lease.pid == process.pid:
                return process.pid
            if process.poll() is not None:
                if process.returncode == 0:
                    return process.pid
                break
            time.sleep(0.05)
        # Somebody else may have started one at the same moment: ours gave way to it.
        lease = database.lease()
        if lease is not None and controller_is_alive(
            database, socket.gethostname(), RealClock().now_s()
        ):
            return lease.pid
        if fold(event for _, event in database.read()).ended is not None:
            return process.pid
    finally:
        database.close()
    raise _did_not_start(directory, process.poll())


def _did_not_start(directory: RunDirectory, exit_code: int | None) -> CloudgavelError:
    """Say how it ended, by what, and what it said; nothing was rented by it."""
    if exit_code is None:
        end = f"it lives, and did nothing within {START_WITHIN_S:.0f} s"
    elif exit_code < 0:
        end = f"it was ended from outside by {_signal_name(-exit_code)}"
    else:
        end = f"it ended with exit code {exit_code}"
    hints = [
        f"its log is {directory.log_path}",
        "start it again: the same `cloudgavel run` command",
    ]
    if exit_code == -signal.SIGKILL:
        hints.insert(0, "SIGKILL that nobody sent comes from the system when memory is short")
    return CloudgavelError(
        "the controller did not start",
        facts=[
            ("what happened", end),
            *(("it said", line) for line in last_lines(directory.log_path)),
        ],
        hints=hints,
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _living_controller(directory: RunDirectory) -> int | None:
    if not directory.exists:
        return None
    database = directory.open_database()
    try:
        lease = database.lease()
        living = controller_is_alive(database, socket.gethostname(), RealClock().now_s())
    finally:
        database.close()
    return lease.pid if lease is not None and living else None


def last_lines(path: Path, count: int = 5) -> list[str]:
    """Return the end of a log; nothing when there is none."""
    try:
        return path.read_text(errors="replace").splitlines()[-count:]
    except OSError:
        return []


def main(arguments: list[str] | None = None) -> int:
    """Run a controller; returns its exit code."""
    parser = argparse.ArgumentParser(prog="cloudgavel-controller", description=__doc__)
    parser.add_argument("--state", required=True, type=Path, help="state directory")
    parser.add_argument("--run", required=True, help="name of the run")
    options = parser.parse_args(arguments)
    try:
        run_controller(RunDirectory(options.state, options.run))
    except CloudgavelError as error:
        facts = "".join(f"  {label}: {value}\n" for label, value in error.facts)
        sys.stderr.write(f"error: {error.message}\n{facts}")
        return int(error.exit_code)
    return int(ExitCode.DONE)


if __name__ == "__main__":
    sys.exit(main())
