"""The controller itself on the fake Google Cloud: from the run's directory to a clean end."""

import threading
import time

import pytest

from cloudgavel.errors import UsageError
from cloudgavel.jobs.spec import AcceleratorRequest, CheckpointPlan, CloudSpec, JobSpec, RunSpec
from cloudgavel.objects.manifest import manifests
from cloudgavel.objects.open import open_store
from cloudgavel.pricing.bundled import bundled_catalog
from cloudgavel.providers.gcp.mocked.cloud import PROJECT, FakeGcp, Habits
from cloudgavel.providers.gcp.mocked.inside import mocked_gcp
from cloudgavel.providers.gcp.sweep import find_tagged
from cloudgavel.runtime.begin import begin_run
from cloudgavel.runtime.controller import require_rentable, run_controller
from tests.e2e.test_gcp_run import COUNTER, STEPS
from tests.fakes.gcp.machines import Machines

pytestmark = pytest.mark.e2e


@pytest.mark.served
def test_a_run_on_a_cloud_is_controlled_through_an_interruption_to_a_clean_end(tmp_path):
    code = tmp_path / "code"
    code.mkdir()
    (code / "counter.py").write_text(COUNTER)
    cloud = CloudSpec(provider="gcp", regions=("us-central1",), project=PROJECT)
    fake = FakeGcp(
        now_s=time.time,
        offers=bundled_catalog().search(providers={"gcp"}),
        habits=Habits(pending_s=1.0, list_lag_s=1.0, notice_s=0.5),
    )
    fake.buckets.add("cloudgavel-e2e")
    machines = Machines(fake, tmp_path / "machines")
    with mocked_gcp(fake) as clients:
        job = JobSpec(
            name="counter",
            commands={"any": f"python3 counter.py {STEPS}"},
            steps_total=STEPS,
            accelerators=(AcceleratorRequest(accelerator="V100"),),
            throughput_steps_per_s={"V100": 40.0},
            workdir=str(code),
            secrets=("TOKEN_OF_MINE",),
            checkpoint=CheckpointPlan(every_s=1.0, save_s=1.0, restore_s=1.0),
        )
        run = RunSpec(
            name="on-gcp",
            jobs=(job,),
            clouds=(cloud,),
            store=f"gs://cloudgavel-e2e/runs/on-gcp?endpoint={clients.endpoint}",
        )
        directory = begin_run(tmp_path / "state", run, budget_usd=50.0, now_s=time.time()).directory
        store = open_store(run.store)
        taken: list[str] = []
        over = threading.Event()

        def take_the_first() -> None:
            while not taken and not over.wait(0.1):
                if manifests(store, "counter") and machines.alive():
                    taken.extend(machines.alive()[:1])
                    fake.interrupt(taken[0])

        taker = threading.Thread(target=take_the_first)
        taker.start()
        try:
            state = run_controller(
                directory,
                environment={
                    "CLOUDGAVEL_GCP_SERVICE_ACCOUNT": "agent@x.iam.gserviceaccount.com",
                    "TOKEN_OF_MINE": "s3cret",
                },
                clients={"gcp": clients},
            )
            assert state.ended == "finished", machines.logs()
            assert taken
            attempts = state.jobs["counter"].attempts
            assert len(attempts) >= 2
            assert attempts[-1].restored_step and attempts[-1].restored_step > 0
            assert 0 < state.spent_usd < 50.0
            assert find_tagged(clients, PROJECT).machines == ()
            assert b"s3cret" not in directory.database_path.read_bytes()
        finally:
            over.set()
            taker.join()
            machines.kill_all()


@pytest.mark.parametrize(
    ("provider", "store", "project", "said"),
    [
        ("aws", None, None, "cannot reach this store"),
        ("aws", "gs://b/runs/x", None, "cannot reach this store"),
        ("gcp", "s3://b/runs/x", "mine", "cannot reach this store"),
        ("gcp", "gs://b/runs/x", None, "no project"),
    ],
)
def test_what_could_not_work_is_refused_before_anything_starts(provider, store, project, said):
    job = JobSpec(
        name="a",
        commands={"any": "true"},
        steps_total=1,
        accelerators=(AcceleratorRequest(accelerator="V100"),),
    )
    cloud = CloudSpec(provider=provider, project=project)
    with pytest.raises(UsageError, match=f"{said}.*nothing was started"):
        require_rentable(RunSpec(name="x", jobs=(job,), clouds=(cloud,), store=store), {})
