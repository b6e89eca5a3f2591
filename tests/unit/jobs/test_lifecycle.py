import itertools

import pytest

from cloudgavel.errors import BugError, ExitCode
from cloudgavel.jobs.lifecycle import ALLOWED_TRANSITIONS, JobPhase, may_become, require_transition

FINAL = {JobPhase.FINISHED, JobPhase.FAILED, JobPhase.CANCELLED}


def test_the_table_covers_every_state() -> None:
    assert set(ALLOWED_TRANSITIONS) == set(JobPhase)


def test_final_states_stay_and_all_others_can_end() -> None:
    for phase in JobPhase:
        assert phase.is_final == (phase in FINAL)
        if not phase.is_final:
            assert {JobPhase.FAILED, JobPhase.CANCELLED} <= ALLOWED_TRANSITIONS[phase]


@pytest.mark.parametrize(
    "story",
    [
        "WAITING STARTING RUNNING FINISHED",
        "RUNNING WAITING STARTING RUNNING",
        "RUNNING SAVING RUNNING SAVING MOVING STARTING RUNNING",
        "RUNNING STARTING RUNNING",
        "SAVING WAITING",
        "MOVING RUNNING",
        "STARTING FINISHED",
    ],
)
def test_stories_that_happen(story: str) -> None:
    for before, after in itertools.pairwise(map(JobPhase, story.split())):
        require_transition(before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("WAITING", "RUNNING"),
        ("WAITING", "FINISHED"),
        ("FINISHED", "RUNNING"),
        ("CANCELLED", "WAITING"),
        ("RUNNING", "RUNNING"),
        ("WAITING", "MOVING"),
    ],
)
def test_refusals_are_bugs_with_facts(before: str, after: str) -> None:
    assert not may_become(JobPhase(before), JobPhase(after))
    with pytest.raises(BugError, match=f"job `a` cannot go from {before} to {after}") as caught:
        require_transition(JobPhase(before), JobPhase(after), job="a")
    assert caught.value.exit_code == ExitCode.BUG
    assert dict(caught.value.facts)["state"] == before
