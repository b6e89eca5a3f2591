"""What agents do when their cloud says that it takes the machine."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cloudgavel.agent.metadata import AwsNotices, GcpNotices, notice_source
from cloudgavel.agent.notices import NoticesSilent, NoticeWatch
from cloudgavel.messages.report import Notice, ProcessState
from cloudgavel.providers.gcp.mocked.server import serve_metadata
from tests.fakes.imds import FakeImds, serve_imds
from tests.unit.agent.harness import PATIENCE_S, Rig, an_order
from tests.unit.agent.test_signalled import a_signalled_order
from tests.unit.gcp.project import a_project, a_request, a_slice, an_offer

NOON_S = 1_795_953_600.0
PLENTY = 100_000
ON_AWS = ("--cloud", "aws", "--notices-every", "0.05")


def an_endless_order(rig: Rig, **changes: object):
    return an_order(
        rig,
        **{
            "command": f"exec python counter.py {PLENTY}",
            "steps_total": PLENTY,
            "run_to_step": None,
            "save_every_s": 3600.0,
        }
        | changes,
    )


@pytest.fixture
def imds(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeImds]:
    fake = FakeImds()
    with serve_imds(fake) as endpoint:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", endpoint)
        yield fake


@pytest.fixture
def aws(imds: FakeImds) -> AwsNotices:
    import os

    source = notice_source("aws", os.environ, wall=time.time)
    assert isinstance(source, AwsNotices)
    return source


# ---- Amazon's metadata


def test_nothing_is_said_until_the_machine_is_taken(imds: FakeImds, aws: AwsNotices) -> None:
    assert aws.look() is None
    imds.take(NOON_S)
    assert aws.look() == Notice(kind="interruption", ends_at_s=NOON_S)
    assert imds.calls["/latest/api/token"] == 1


def test_a_recommendation_is_the_lesser_word(imds: FakeImds, aws: AwsNotices) -> None:
    imds.recommended = True
    assert aws.look() == Notice(kind="rebalance", ends_at_s=None)
    imds.take(NOON_S)
    found = aws.look()
    assert found is not None and found.kind == "interruption"


def test_an_expired_token_is_renewed(imds: FakeImds, aws: AwsNotices) -> None:
    aws.look()
    imds.forget_tokens()
    imds.take(NOON_S)
    assert aws.look() is not None
    assert imds.calls["/latest/api/token"] == 2


def test_what_does_not_answer_is_silent_and_is_asked_again(imds: FakeImds, aws: AwsNotices) -> None:
    imds.broken = True
    aws.pause_s = 0.01
    with pytest.raises(NoticesSilent, match="HTTP 503"):
        aws.look()
    with pytest.raises(NoticesSilent):
        AwsNotices("http://127.0.0.1:9").look()
    heard: list[object] = []
    watch = NoticeWatch(aws, lambda: heard.append(1))
    imds.broken = False
    imds.take(NOON_S)
    deadline = time.monotonic() + PATIENCE_S
    while not heard:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    assert watch.notice == Notice(kind="interruption", ends_at_s=NOON_S)


@pytest.mark.parametrize("body", [b"", b"{}", b'{"time": 3}', b'{"time": "soon"}'])
def test_an_end_that_cannot_be_read_is_unknown(
    imds: FakeImds, aws: AwsNotices, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    monkeypatch.setattr(aws, "_read", lambda _name: body)
    assert aws.look() == Notice(kind="interruption", ends_at_s=None)


def test_a_cloud_that_tells_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="moon"):
        notice_source("moon", {}, wall=time.time)


# ---- Google's metadata, of machines and slices


@contextmanager
def a_google_machine(offer) -> Iterator[tuple[object, str, str]]:
    with a_project(offer) as project:
        name = project.provider.launch(a_request(offer)).instance_id
        with serve_metadata(project.cloud, name) as host:
            yield project, name, host


@pytest.mark.parametrize("offer", [an_offer(), a_slice()], ids=["machine", "slice"])
def test_a_preemption_ends_the_wait(offer) -> None:
    with a_google_machine(offer) as (project, name, host):
        source = GcpNotices(host, wall=lambda: NOON_S, wait_s=20.0)
        assert source.look() is None
        heard: list[object] = []
        source.pause_s = 0.0
        began = time.monotonic()
        watch = NoticeWatch(source, lambda: heard.append(1))
        time.sleep(0.05)
        project.cloud.interrupt(name)
        while not heard:
            assert time.monotonic() < began + 10.0
            time.sleep(0.005)
        assert watch.notice == Notice(kind="interruption", ends_at_s=NOON_S + 30.0)


def test_maintenance_that_stops_the_machine_is_told() -> None:
    with a_google_machine(an_offer()) as (project, name, host):
        source = GcpNotices(host, wall=lambda: NOON_S, wait_s=0.05)
        machine = project.cloud.machine(name)
        machine.maintenance = "MIGRATE_ON_HOST_MAINTENANCE"
        assert source.look() is None
        machine.maintenance = "TERMINATE_ON_HOST_MAINTENANCE"
        assert source.look() == Notice(kind="maintenance", ends_at_s=None)


# ---- real agents


def test_on_a_notice_the_job_saves_and_ends_and_the_agent_stays(rig: Rig, imds: FakeImds) -> None:
    rig.start(*ON_AWS)
    rig.order(an_endless_order(rig))
    rig.wait_job(lambda job: job.step > 20)
    assert rig.report().notice is None
    imds.take(float(int(time.time()) + 120))
    job = rig.wait_job(lambda job: job.state is ProcessState.STOPPED)
    assert job.saved_step == job.step > 20
    report = rig.report()
    assert report.notice is not None and report.notice.kind == "interruption"
    assert report.notice.ends_at_s == imds.taken_at_s()
    assert not report.ending
    rig.order(an_endless_order(rig, attempt=2))
    job = rig.wait_job(lambda job: job.attempt == 2)
    assert (job.state, job.step, job.error) == (ProcessState.STOPPED, 0, None)
    assert rig.agent is not None and rig.agent.poll() is None


def test_a_script_of_its_own_is_ended_by_sigterm_in_time(rig: Rig, imds: FakeImds) -> None:
    rig.start(*ON_AWS)
    rig.order(
        a_signalled_order(
            rig,
            command=f"exec python signalled.py {PLENTY}",
            steps_total=PLENTY,
            run_to_step=None,
        )
    )
    rig.wait_job(lambda job: job.step > 10)
    imds.take(time.time() + 30)
    job = rig.wait_job(lambda job: job.state is ProcessState.STOPPED)
    assert job.saved_step is not None and job.saved_step > 10


def test_a_script_that_hangs_is_given_the_clouds_time_not_its_own(rig: Rig, imds: FakeImds) -> None:
    rig.start(*ON_AWS)
    hangs = "trap '' TERM; echo step 5; while :; do sleep 0.05; done"
    rig.order(
        a_signalled_order(rig, command=hangs, run_to_step=None, grace_s=3600.0),
    )
    rig.wait_job(lambda job: job.step == 5)
    imds.take(time.time() + 2.0)
    rig.wait_job(lambda job: job.state is ProcessState.STOPPED)


def test_on_a_recommendation_the_job_saves_and_goes_on(rig: Rig, imds: FakeImds) -> None:
    rig.start(*ON_AWS)
    rig.order(an_endless_order(rig))
    rig.wait_job(lambda job: job.step > 20)
    imds.recommended = True
    saved = rig.wait_job(lambda job: job.saved_step is not None)
    assert saved.state is not ProcessState.STOPPED
    going = rig.wait_job(lambda job: job.step > saved.step + 20)
    assert going.state is ProcessState.RUNNING


def test_a_member_of_a_gang_waits_for_the_controller(rig: Rig, imds: FakeImds) -> None:
    rig.start(*ON_AWS)
    rig.order(an_endless_order(rig, rank=1, world_size=2, peers=("i-0", "i-1")))
    rig.wait_job(lambda job: job.step > 20)
    imds.take(time.time() + 120)
    before = rig.wait(lambda report: report.notice is not None).jobs[0]
    job = rig.wait_job(lambda job: job.step > before.step + 20)
    assert (job.state, job.saved_step) == (ProcessState.RUNNING, None)


def test_an_agent_on_google_cloud_saves_within_the_notice(
    make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with a_google_machine(an_offer()) as (project, name, host):
        monkeypatch.setenv("GCE_METADATA_HOST", host)
        rig = make_rig(instance=name).start("--cloud", "gcp")
        rig.order(an_endless_order(rig))
        rig.wait_job(lambda job: job.step > 20)
        project.cloud.interrupt(name)
        job = rig.wait_job(lambda job: job.state is ProcessState.STOPPED)
        assert job.saved_step == job.step
        assert rig.report().notice.kind == "interruption"
