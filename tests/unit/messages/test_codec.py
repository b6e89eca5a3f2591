"""Messages survive the wire; malformed ones say where."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudgavel.messages.codec import (
    MalformedMessage,
    decode_lease,
    decode_orders,
    decode_report,
    encode_lease,
    encode_orders,
    encode_report,
)
from cloudgavel.messages.orders import JobOrder, Orders, Verb
from cloudgavel.messages.report import JobReport, Notice, ProcessState, Report

words = st.text(max_size=8)
counts = st.integers(0, 10**12)
job_orders = st.builds(
    JobOrder,
    job=words,
    attempt=counts,
    verb=st.sampled_from(Verb),
    command=words,
    env=st.dictionaries(words, words, max_size=2),
    setup=st.none() | words,
    accelerator_indices=st.lists(st.integers(0, 15), max_size=3).map(tuple),
    peers=st.lists(words, max_size=2).map(tuple),
    steps_total=counts,
    run_to_step=st.none() | counts,
    save_at_steps=st.lists(counts, max_size=3).map(tuple),
    save_every_s=st.none() | st.floats(0, 1e9),
    save_before_stop=st.booleans(),
    progress_pattern=st.none() | words,
)
job_reports = st.builds(
    JobReport,
    job=words,
    attempt=counts,
    state=st.sampled_from(ProcessState),
    step=counts,
    saved_step=st.none() | counts,
    save_error=st.none() | words,
    exit_code=st.none() | st.integers(-64, 255),
    loss=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    last_lines=st.lists(words, max_size=3).map(tuple),
)


@settings(max_examples=50, deadline=None)
@given(jobs=st.lists(job_orders, max_size=2).map(tuple), sequence=counts, off=st.booleans())
def test_orders_come_back_as_they_were(
    jobs: tuple[JobOrder, ...], sequence: int, off: bool
) -> None:
    orders = Orders(
        run_id="r", instance_id="i", sequence=sequence, lease_s=1.5, jobs=jobs, power_off=off
    )
    assert decode_orders(encode_orders(orders)) == orders


@settings(max_examples=50, deadline=None)
@given(jobs=st.lists(job_reports, max_size=2).map(tuple), ending=st.booleans())
def test_reports_come_back_as_they_were(jobs: tuple[JobReport, ...], ending: bool) -> None:
    report = Report(
        run_id="r",
        instance_id="i",
        sequence_seen=3,
        heartbeat_at_s=1.25,
        agent_pid=7,
        jobs=jobs,
        notice=Notice(kind="interruption", ends_at_s=None),
        ending=ending,
    )
    assert decode_report(encode_report(report)) == report


def test_a_loss_that_is_not_a_number_is_unknown() -> None:
    job = JobReport(job="a", attempt=1, state=ProcessState.RUNNING, step=1, loss=float("nan"))
    report = Report(
        run_id="r", instance_id="i", sequence_seen=1, heartbeat_at_s=1.0, agent_pid=1, jobs=(job,)
    )
    assert decode_report(encode_report(report)).jobs[0].loss is None


def test_the_lease() -> None:
    assert decode_lease(encode_lease(12.5)) == 12.5


GOOD = json.loads(
    encode_orders(
        Orders(
            run_id="r",
            instance_id="i",
            sequence=1,
            lease_s=1.0,
            jobs=(JobOrder(job="a", attempt=1, verb=Verb.RUN, command="x", steps_total=3),),
        )
    )
)


def test_keys_of_a_later_version_are_ignored_and_missing_ones_take_their_default() -> None:
    job = {"job": "a", "attempt": 1, "verb": "run", "command": "x", "steps_total": 3, "new": 1}
    orders = decode_orders(json.dumps({**GOOD, "jobs": [job], "more": {}}).encode())
    assert orders.jobs[0].grace_s == 20.0


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not JSON"),
        (b'{"kind": "orders", "sequ', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[]", "expected an object, found a list"),
        (json.dumps({**GOOD, "kind": "report"}).encode(), "at kind: it is 'report'"),
        (json.dumps({**GOOD, "schema_version": 9}).encode(), "expected 1, found 9"),
        (json.dumps({**GOOD, "sequence": "1"}).encode(), "at sequence: expected a whole number"),
        (json.dumps({**GOOD, "sequence": True}).encode(), "at sequence: expected a whole number"),
        (
            json.dumps({**GOOD, "lease_s": None}).encode(),
            "at lease_s: expected a number, found null",
        ),
        (json.dumps({**GOOD, "jobs": {}}).encode(), "at jobs: expected a list, found an object"),
        (json.dumps({**GOOD, "jobs": [{}]}).encode(), r"at jobs\[0\]\.job: it is missing"),
        (
            json.dumps({**GOOD, "jobs": [{**GOOD["jobs"][0], "verb": "fly"}]}).encode(),
            r"at jobs\[0\]\.verb: 'fly' is none of run, stop",
        ),
        (
            json.dumps({**GOOD, "jobs": [{**GOOD["jobs"][0], "env": {"A": 1}}]}).encode(),
            r"at jobs\[0\]\.env\.A: expected a text, found 1",
        ),
    ],
)
def test_a_malformed_message_says_where(data: bytes, said: str) -> None:
    with pytest.raises(MalformedMessage, match=said):
        decode_orders(data)
