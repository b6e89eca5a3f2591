"""One run over AWS and Google Cloud with one store, end to end on this machine.

Moto serves AWS, the project's own fake serves Google Cloud, and every machine really runs its
start-up script, its agent and its jobs. Machines in the other cloud than the store reach it by
their own identity; the fakes refuse everybody else.
"""

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from cloudgavel.cli.spec_file import load_run
from cloudgavel.documents.run import RunDocument
from cloudgavel.jobs.spec import AcceleratorRequest, CheckpointPlan, CloudSpec, JobSpec, RunSpec
from cloudgavel.messages import layout
from cloudgavel.messages.codec import decode_report
from cloudgavel.messages.report import ProcessState
from cloudgavel.objects.keyless import AUDIENCE
from cloudgavel.objects.manifest import manifests
from cloudgavel.objects.open import open_store
from cloudgavel.objects.store import ObjectMissing
from cloudgavel.pricing.bundled import bundled_catalog
from cloudgavel.providers.aws.mocked import layer as aws_layer
from cloudgavel.providers.aws.sweep import find_tagged as find_tagged_on_aws
from cloudgavel.providers.gcp.clients import GcpClients
from cloudgavel.providers.gcp.mocked.cloud import PROJECT, FakeGcp, Habits
from cloudgavel.providers.gcp.mocked.identity import account_id
from cloudgavel.providers.gcp.mocked.inside import mocked_gcp
from cloudgavel.providers.gcp.sweep import find_tagged as find_tagged_on_gcp
from cloudgavel.runtime.account import run_document
from cloudgavel.runtime.begin import begin_run
from cloudgavel.runtime.controller import run_controller
from cloudgavel.runtime.directory import RunDirectory
from cloudgavel.store import events as ev
from cloudgavel.store.ledger import imbalance_micro_usd
from cloudgavel.store.records import RunState
from tests.e2e.test_crash import _processes_under
from tests.e2e.test_gcp_run import COUNTER
from tests.fakes.gcp.machines import Machines as GoogleMachines
from tests.fakes.imds import KEY_ID

pytest.importorskip("flask", reason="the moto server needs moto[server]")

from tests.e2e.moto_cloud.machines import Machines as AwsMachines
from tests.e2e.moto_cloud.server import CONTROLLER, MotoCloud, moto_cloud

pytestmark = [pytest.mark.e2e, pytest.mark.served, pytest.mark.timeout(900)]

TWO_CLOUDS = Path(__file__).parents[2] / "examples" / "two-clouds" / "jobs.yaml"
ROLE = "arn:aws:iam::123456789012:role/cloudgavel-agent"
PROVIDER = "projects/1/locations/global/workloadIdentityPools/cloudgavel/providers/aws"
ACCOUNT = f"cloudgavel-agent@{PROJECT}.iam.gserviceaccount.com"
SETTINGS = {
    "CLOUDGAVEL_AWS_INSTANCE_PROFILE": "cloudgavel-agent",
    "CLOUDGAVEL_AWS_STORE_ROLE": ROLE,
    "CLOUDGAVEL_GCP_SERVICE_ACCOUNT": ACCOUNT,
    "CLOUDGAVEL_GCP_STORE_PROVIDER": PROVIDER,
}
FACTOR = 5
CLOUDS = (
    CloudSpec(provider="aws", regions=("us-east-1", "us-west-2")),
    CloudSpec(provider="gcp", regions=("us-central1",), project=PROJECT),
)


@dataclass
class World:
    """Both clouds, what runs on their machines, and what was taken from the run."""

    aws: MotoCloud
    google: FakeGcp
    clients: GcpClients
    on_aws: AwsMachines
    on_google: GoogleMachines
    taken: dict[str, str] = field(default_factory=dict)
    """By kind (``aws``, ``vm``, ``tpu``): the machine."""

    def alive(self) -> list[str]:
        return [*self.on_aws.alive(), *self.on_google.alive()]

    def kind_of(self, name: str) -> str | None:
        """``aws``, ``vm`` or ``tpu``; ``None`` for a machine that a cloud would not take."""
        if name.startswith("i-"):
            return "aws" if self.aws.layer._machines[name].is_spot else None
        if not self.google.machine(name).is_spot:
            return None
        return "tpu" if name.startswith("cloudgavel-tpu") else "vm"

    def take(self, name: str, kind: str) -> None:
        if kind == "aws":
            self.aws.layer.interrupt(name)
        else:
            self.google.interrupt(name)
        self.taken[kind] = name


@contextlib.contextmanager
def two_clouds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    catalogue = bundled_catalog()
    google = FakeGcp(
        now_s=time.time,
        offers=catalogue.search(providers={"gcp"}),
        habits=Habits(pending_s=1.0, list_lag_s=1.0, notice_s=0.5),
    )
    google.buckets.add("my-bucket")
    google.impersonated.add(ACCOUNT)
    google.aws_accounts[PROVIDER] = "123456789012"
    google.aws_account_of = lambda headers: (
        "123456789012" if f"Credential={KEY_ID}/" in headers["authorization"] else None
    )
    with (
        moto_cloud(
            catalogue.search(providers={"aws"}),
            habits=aws_layer.Habits(pending_s=1.0, list_lag_s=1.0),
        ) as aws,
        mocked_gcp(google) as clients,
    ):
        aws.clients.client("s3", "us-east-1").create_bucket(Bucket="my-bucket")
        aws.trust.audience = AUDIENCE
        aws.trust.account_by_role[ROLE] = account_id(ACCOUNT)
        for name, value in {
            "AWS_ENDPOINT_URL": aws.url,
            "AWS_ACCESS_KEY_ID": CONTROLLER,
            "AWS_SECRET_ACCESS_KEY": CONTROLLER,
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(name, value)
        world = World(
            aws=aws,
            google=google,
            clients=clients,
            on_aws=AwsMachines(aws, tmp_path / "aws"),
            on_google=GoogleMachines(google, tmp_path / "gcp", {"AWS_ENDPOINT_URL": aws.url}),
        )
        try:
            yield world
        finally:
            world.on_aws.kill_all()
            world.on_google.kill_all()


def controlled(world: World, run: RunSpec, directory: RunDirectory, kinds: set[str]) -> RunState:
    """Control the run to its end; of each kind one machine whose job has saved is taken."""
    store = open_store(run.store)
    over = threading.Event()

    def take() -> None:
        while set(world.taken) < kinds and not over.wait(0.1):
            for name in world.alive():
                kind = world.kind_of(name)
                if kind in kinds and kind not in world.taken and _has_saved(store, name):
                    world.take(name, kind)

    taker = threading.Thread(target=take)
    taker.start()
    try:
        return run_controller(
            directory,
            environment=SETTINGS,
            clients={"aws": world.aws.clients, "gcp": world.clients},
        )
    finally:
        over.set()
        taker.join()


def _has_saved(store, name: str) -> bool:
    """Whether a job runs there, and can go on elsewhere."""
    try:
        report = decode_report(store.get(layout.report_key(name)))
    except ObjectMissing:
        return False
    return any(
        job.state is ProcessState.RUNNING and manifests(store, job.job) for job in report.jobs
    )


def assert_clean(world: World, directory: RunDirectory, state: RunState, tmp_path: Path) -> None:
    """Nothing is left anywhere, and every dollar is somebody's."""
    assert find_tagged_on_aws(world.aws.clients, None).instances == ()
    assert find_tagged_on_gcp(world.clients, PROJECT).machines == ()
    assert not [name for (_, name) in world.google.slices if world.google.status(name)]
    ends_s = time.monotonic() + 20.0
    while _processes_under(tmp_path) and time.monotonic() < ends_s:
        time.sleep(0.1)
    assert world.alive() == []
    assert _processes_under(tmp_path) == []
    assert imbalance_micro_usd(state) == 0
    document = run_document(state)
    machines_usd = sum(each.cost_usd for each in document.instances)
    lines_usd = sum(each.usd for each in document.lines)
    assert round(machines_usd + lines_usd, 6) == document.spent_usd
    jobs_usd = sum(job.spent_usd for job in document.jobs)
    assert round(jobs_usd + document.unattributed_usd, 6) == document.spent_usd
    assert all(each.ended_at is not None for each in document.instances)
    assert {each.end_reason for each in document.instances} <= {"requested", "interrupted"}


def address_here() -> str:
    """What agents report of this machine; asked in a process that may use sockets."""
    program = "from cloudgavel.agent.environment import own_address; print(own_address())"
    return subprocess.check_output([sys.executable, "-c", program], text=True).strip()


def events_of(directory: RunDirectory) -> list[ev.Event]:
    database = directory.open_database()
    try:
        return [event for _, event in database.read()]
    finally:
        database.close()


def test_the_quick_start_on_both_clouds_survives_what_clouds_do(tmp_path, monkeypatch):
    given = load_run(str(TWO_CLOUDS))
    jobs = tuple(_to_be_interrupted(job) for job in given.jobs)
    run = replace(given, jobs=jobs, clouds=CLOUDS, store="s3://my-bucket/runs/two-clouds")
    with two_clouds(tmp_path, monkeypatch) as world:
        # The zone that is asked first has nothing to give.
        first: list[tuple[str, str]] = []

        def stocked_out(zone: str, kind: str, spot: bool) -> bool:
            if not first:
                first.append((zone, kind))
            return (zone, kind) == first[0]

        world.aws.layer.faults.stocked_out = stocked_out
        directory = begin_run(
            tmp_path / "state", run, budget_usd=500.0, now_s=time.time()
        ).directory
        state = controlled(world, run, directory, {"aws", "vm", "tpu"})
        try:
            assert state.ended == "finished"
            assert set(world.taken) == {"aws", "vm", "tpu"}
            assert_clean(world, directory, state, tmp_path)
            document = run_document(state)
            _assert_promises(document)
            events = events_of(directory)
            refused = {each.failure for each in events if isinstance(each, ev.LaunchFailed)}
            assert refused == {"capacity"}
            ends = {e.instance_id: str(e.reason) for e in events if isinstance(e, ev.InstanceEnded)}
            for name in world.taken.values():
                assert ends[name] == "interrupted"
            assert {each.provider for each in document.instances} == {"aws", "gcp"}
            resumed = [
                attempt.restored_step for job in state.jobs.values() for attempt in job.attempts[1:]
            ]
            assert len(resumed) >= 3 and all(resumed)
            # Google's machines used S3 with keys for an hour, and with no others.
            uses = world.aws.trust.uses
            assert {CONTROLLER, KEY_ID} < set(uses) == world.aws.trust.keys
        finally:
            # Shown by pytest when something failed.
            print(*events_of(directory), world.on_aws.logs(), world.on_google.logs(), sep="\n")


def _to_be_interrupted(job: JobSpec) -> JobSpec:
    """More steps in as much of the plan's time, saved every second.

    The spirals train on an L4, whose cheapest machine is Google's, and have time enough for spot:
    so each kind of machine is rented on spot.
    """
    changed = replace(
        job,
        checkpoint=CheckpointPlan(every_s=1.0, save_s=1.0, restore_s=1.0),
        steps_total=FACTOR * job.steps_total,
        throughput_steps_per_s={
            label: FACTOR * steps_per_s for label, steps_per_s in job.throughput_steps_per_s.items()
        },
    )
    if not job.name.startswith("spirals"):
        return changed
    return replace(
        changed,
        accelerators=(AcceleratorRequest(accelerator="L4"),),
        throughput_steps_per_s={"L4": FACTOR * 0.10},
        deadline_s=4 * job.deadline_s,
    )


def _assert_promises(document: RunDocument) -> None:
    """Every deadline is kept, or named as one that is not."""
    let_go = {each.job for each in document.relaxed}
    for job in document.jobs:
        assert (job.state, job.steps_done) == ("FINISHED", job.steps_total)
        assert job.deadline_met or job.name in let_go


def test_a_store_on_google_cloud_serves_machines_of_both(tmp_path, monkeypatch):
    code = tmp_path / "code"
    code.mkdir()
    (code / "counter.py").write_text(COUNTER)
    steps = 400

    def a_job(name: str, accelerator: str) -> JobSpec:
        return JobSpec(
            name=name,
            commands={"any": f"python counter.py {steps}"},
            steps_total=steps,
            accelerators=(AcceleratorRequest(accelerator=accelerator),),
            throughput_steps_per_s={accelerator: 40.0},
            workdir=str(code),
            checkpoint=CheckpointPlan(every_s=1.0, save_s=1.0, restore_s=1.0),
        )

    # Sixteen V100 are two machines, which have to find each other.
    gang = replace(
        a_job("gang", "V100"),
        accelerators=(AcceleratorRequest(accelerator="V100", count=16),),
        throughput_steps_per_s={"V100:16": 40.0},
        commands={"any": f'test "$MASTER_ADDR" = "{address_here()}" && python counter.py {steps}'},
    )
    with two_clouds(tmp_path, monkeypatch) as world:
        run = RunSpec(
            name="on-both",
            jobs=(a_job("on-aws", "A10G"), a_job("on-google", "tpu-v5litepod-4"), gang),
            clouds=CLOUDS,
            store=f"gs://my-bucket/runs/on-both?endpoint={world.clients.endpoint}",
        )
        directory = begin_run(tmp_path / "state", run, budget_usd=50.0, now_s=time.time()).directory
        state = controlled(world, run, directory, {"aws"})
        try:
            assert state.ended == "finished"
            assert_clean(world, directory, state, tmp_path)
            assert world.google.calls["sts.token"] >= 2
            assert world.google.calls["token impersonated"] > world.google.calls["sts.token"]
            assert world.aws.trust.uses == {CONTROLLER: 1}  # the bucket of the set-up
            # The machine that was taken may have been one of the gang's.
            resumed = [
                job for job in state.jobs.values() for each in job.attempts if each.restored_step
            ]
            assert set(world.taken) == {"aws"} and resumed
            (together,) = {each.instance_ids for each in state.jobs["gang"].attempts[-1:]}
            zones = {state.instances[each].offer.zone for each in together}
            assert (len(together), len(zones)) == (2, 1)
        finally:
            print(*events_of(directory), world.on_aws.logs(), world.on_google.logs(), sep="\n")
