"""Following a run from the command line until it ends, and what its end means for the shell."""

import os
import sys
import time
from typing import TYPE_CHECKING

from cloudgavel.cli.live import Watched, follow_live, follow_plainly
from cloudgavel.cli.streams import answer, answer_json, note, text_width, wants_motion
from cloudgavel.documents.run import RunDocument
from cloudgavel.documents.status import StatusDocument
from cloudgavel.errors import ExitCode, PartlyAppliedError
from cloudgavel.views.format import rate, span

if TYPE_CHECKING:
    from cloudgavel.runtime.directory import RunDirectory
    from cloudgavel.runtime.reader import RunReader

EXIT_OF_STATE = {
    "finished": ExitCode.DONE,
    "failed": ExitCode.FAILED,
    "budget_exhausted": ExitCode.BUDGET_EXHAUSTED,
    "stopped": ExitCode.FAILED,
}


HEARD_WITHIN_S = 60.0
"""Real seconds that a request may wait while its controller gives no sign of life."""


def open_reader(directory: "RunDirectory") -> "RunReader":
    """A reader of the run with the real clock, up to date."""
    from cloudgavel.runtime.reader import RunReader
    from cloudgavel.runtime.real_clock import RealClock

    reader = RunReader(directory, RealClock())
    reader.poll()
    return reader


def has_controller(directory: "RunDirectory") -> bool:
    """True while a controller of the run lives."""
    reader = open_reader(directory)
    try:
        return reader.controller_alive()
    finally:
        reader.close()


def follow(
    directory: "RunDirectory",
    *,
    as_json: bool,
    live: bool = True,
    whole: bool = False,
    request_id: int | None = None,
) -> int:
    """Show a run until it ends or the person leaves; print its account; return the exit code.

    ``whole``: tell, as lines, also what happened before; otherwise from now on. ``request_id``: a
    request of which something must come: ``PartlyAppliedError`` when a controller without a sign of
    life has not taken it for ``HEARD_WITHIN_S``.
    """
    reader = open_reader(directory)
    try:
        note(beginning_words(reader.status()))
        watched = _watch(reader, live=live and not as_json, whole=whole, request_id=request_id)
        if watched.controller_gone:
            raise gone_error(reader.status(), directory)
        if not watched.ended:
            note(leaving_words(reader.status()))
            return ExitCode.DONE
        return print_account(reader.account(), as_json=as_json)
    except KeyboardInterrupt:
        note(leaving_words(reader.status()))
        return ExitCode.INTERRUPTED
    finally:
        reader.close()


def _watch(
    reader: "RunReader", *, live: bool, whole: bool, request_id: int | None = None
) -> Watched:
    def read() -> StatusDocument:
        if request_id is not None:
            _require_heard(reader, request_id)
        # Liveness first: an end that is written just before the controller leaves is then seen.
        alive = reader.controller_alive()
        reader.poll()
        status = reader.status()
        if alive and not status.controller_alive:
            reader.poll()
            status = reader.status()
        return status

    if live and wants_motion(sys.stderr, os.environ):
        return follow_live(read, leave_hint="the run goes on")
    already = () if whole else reader.status().events
    return follow_plainly(read, time.sleep, already=already)


def _require_heard(reader: "RunReader", request_id: int) -> None:
    """Give up on a controller that exists and does nothing (stopped, stuck, out of reach)."""
    unheard_s = reader.unheard_s(request_id)
    if unheard_s is None or unheard_s <= HEARD_WITHIN_S:
        return
    lease = reader.lease()
    status = reader.status()
    who = "unknown" if lease is None else f"process {lease.pid} on {lease.host}"
    raise PartlyAppliedError(
        f"the controller of `{status.name}` does not answer; nothing was stopped yet",
        facts=[
            ("controller", who),
            ("last sign of life", f"{span(status.controller_seen_s_ago or 0.0)} ago"),
            ("machines", f"{machine_count(status)}, {rate(status.usd_per_hour)} as last known"),
        ],
        hints=[
            f"end that process, then again: cloudgavel down {status.name}",
            "the request stays: the controller takes it when it goes on",
        ],
    )


def machine_count(status: StatusDocument) -> int:
    """How many machines are rented."""
    return sum(line.count for line in status.fleet)


def print_account(account: RunDocument, *, as_json: bool) -> int:
    """Print a run's account to stdout; return the exit code of its state."""
    from cloudgavel.documents.encode import as_json as document_json

    if as_json:
        answer_json(document_json(account))
    else:
        answer(run_words(account))
    return EXIT_OF_STATE.get(account.state, ExitCode.DONE)


def run_words(account: RunDocument) -> str:
    """The account as text for this terminal."""
    from cloudgavel.views.run import run_text

    return run_text(account, width=text_width())


def beginning_words(status: StatusDocument) -> str:
    """Which run is followed, and what its times are."""
    times = "times are virtual, no money is spent" if status.rehearsal else "times are UTC"
    return f"{status.name}: run {status.run_id}, {times}"


def leaving_words(status: StatusDocument) -> str:
    """What goes on, what it costs and how to stop it."""
    machines = machine_count(status)
    cost = f"{machines} {'machine' if machines == 1 else 'machines'}, {rate(status.usd_per_hour)}"
    if status.rehearsal:
        cost += " (a rehearsal: no money is spent)"
    return (
        f"{status.name} goes on: {cost}\n"
        f"  attach again  cloudgavel watch {status.name}\n"
        f"  stop it       cloudgavel down {status.name}"
    )


def gone_error(status: StatusDocument, directory: "RunDirectory") -> PartlyAppliedError:
    """The run has not ended and nobody controls it; with the last words of the controller."""
    from cloudgavel.runtime.controller import last_lines

    machines = machine_count(status)
    return PartlyAppliedError(
        f"the controller of `{status.name}` is gone and the run has not ended",
        facts=[
            ("machines", f"{machines}, {rate(status.usd_per_hour)} as last known"),
            ("jobs", "go on until their agents miss the controller, then save and end"),
            *(("it said", line) for line in last_lines(directory.log_path)),
        ],
        hints=[
            "go on where it was: give the same `cloudgavel run` command again",
            f"or save and end everything: cloudgavel down {status.name}",
        ],
    )
