"""Beginning a run: once, whoever else begins it; asking a controller that does not answer."""

import multiprocessing
import os
import socket
from pathlib import Path

import pytest

from cloudgavel.cli.following import HEARD_WITHIN_S, follow
from cloudgavel.errors import PartlyAppliedError, UsageError
from cloudgavel.runtime.begin import BeginKind, begin_run, controller_is_alive
from cloudgavel.runtime.directory import RunDirectory, read_state
from cloudgavel.runtime.real_clock import now_s
from cloudgavel.runtime.requests import ask_down, events_of_request
from cloudgavel.store import events as ev
from cloudgavel.store.database import LEASE_EXPIRES_S, Database
from tests.unit.runtime.scripted import START_S, a_job, a_run, an_offer


def begin(state: Path, *, best_effort: bool = False) -> BeginKind:
    return begin_run(state, a_run(), budget_usd=50.0, now_s=START_S, best_effort=best_effort).kind


def a_controller(directory: RunDirectory, *, beat_at_s: float, host: str | None = None) -> Database:
    """A lease of this very process, which lives and does nothing."""
    database = directory.open_database()
    database.take_lease(
        holder="me", pid=os.getpid(), host=host or socket.gethostname(), now_s=beat_at_s
    )
    return database


def test_of_several_that_begin_at_once_one_creates_the_run(tmp_path: Path) -> None:
    states = [tmp_path / str(number) for number in range(6) for _ in range(3)]
    with multiprocessing.get_context("fork").Pool(3) as pool:
        kinds = pool.map(begin, states, chunksize=1)
    assert kinds.count(BeginKind.NEW) == 6
    assert set(kinds) == {BeginKind.NEW, BeginKind.RESUMED}
    for state in set(states):
        database = RunDirectory(state, "test").open_database()
        assert [type(e) for _, e in database.read()] == [ev.RunCreated]
        assert sorted(path.name for path in state.iterdir()) == ["test", "test.lock"]


def test_a_database_without_a_run_is_taken_as_it_is(tmp_path: Path) -> None:
    RunDirectory(tmp_path, "test").open_database().close()
    begun = begin_run(tmp_path, a_run(), budget_usd=50.0, now_s=START_S)
    assert (begun.kind, begun.put_aside) == (BeginKind.NEW, None)


def test_best_effort_reaches_a_living_controller_as_a_request(tmp_path: Path) -> None:
    begin(tmp_path)
    directory = RunDirectory(tmp_path, "test")
    database = a_controller(directory, beat_at_s=START_S)
    assert begin(tmp_path) is BeginKind.ATTACHED
    assert not database.open_requests()
    assert begin(tmp_path, best_effort=True) is BeginKind.ATTACHED
    (request,) = database.open_requests()
    state = read_state(directory)
    (event,) = events_of_request(request.kind, request.body, state, START_S)
    assert event == ev.RunResumed(at_s=START_S, best_effort=True)
    database.append([event])
    assert not events_of_request(request.kind, request.body, read_state(directory), START_S)


def test_a_controller_of_another_host_is_gone_after_its_silence(tmp_path: Path) -> None:
    database = a_controller(RunDirectory(tmp_path, "test"), beat_at_s=0.0, host="there")
    assert controller_is_alive(database, "here", LEASE_EXPIRES_S)
    assert not controller_is_alive(database, "here", LEASE_EXPIRES_S + 1.0)


def test_who_asks_a_controller_that_gives_no_sign_of_life_is_told(tmp_path: Path) -> None:
    begin(tmp_path)
    directory = RunDirectory(tmp_path, "test")
    long_ago_s = now_s() - HEARD_WITHIN_S - 20.0
    database = a_controller(directory, beat_at_s=long_ago_s)
    number = ask_down(database, reason="enough", asked_at_s=long_ago_s)
    with pytest.raises(PartlyAppliedError) as told:
        follow(directory, as_json=True, live=False, request_id=number)
    assert ("controller", f"process {os.getpid()} on {socket.gethostname()}") in told.value.facts
    assert any("cloudgavel down test" in hint for hint in told.value.hints)


def test_a_request_of_a_controller_that_beats_waits(tmp_path: Path) -> None:
    from cloudgavel.cli.following import open_reader

    begin(tmp_path)
    directory = RunDirectory(tmp_path, "test")
    database = a_controller(directory, beat_at_s=now_s())
    number = ask_down(database, reason="enough", asked_at_s=now_s() - 1000.0)
    reader = open_reader(directory)
    waiting_s = reader.unheard_s(number)
    assert waiting_s is not None and waiting_s < HEARD_WITHIN_S
    database.mark_taken(number)
    assert reader.unheard_s(number) is None
    reader.close()


def test_a_budget_below_what_is_spent_and_committed_is_refused_and_not_taken(
    tmp_path: Path,
) -> None:
    run = a_run(a_job("a"))
    begun = begin_run(tmp_path, run, budget_usd=10.0, now_s=START_S)
    database = begun.directory.open_database()
    database.append(
        [
            ev.LaunchIntended(
                at_s=START_S, token="t", offers=(an_offer(),), for_jobs=("a",), reason="test",
                round_number=1,
            ),
            ev.LaunchSucceeded(
                at_s=START_S, token="t", instance_id="i", offer=an_offer(),
                launched_at_s=START_S, price_usd_per_hour=3.6,
            ),
            ev.Accrued(
                at_s=START_S + 600.0,
                lines=(
                    ev.AccruedLine(
                        instance_id="i", until_s=START_S + 600.0, micro_usd=600_000,
                        unattributed_micro_usd=600_000,
                    ),
                ),
            ),
        ]
    )  # fmt: skip
    database.close()
    with pytest.raises(UsageError, match="was not changed") as refused:
        begin_run(tmp_path, run, budget_usd=0.5, now_s=START_S + 600.0)
    assert ("spent", "$0.60") in refused.value.facts
    assert read_state(begun.directory).budget_usd == 10.0
    begin_run(tmp_path, run, budget_usd=0.7, now_s=START_S + 600.0)
    assert read_state(begun.directory).budget_usd == 0.7
