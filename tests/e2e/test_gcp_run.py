"""A whole run on the fake Google Cloud: real start-up scripts, agents and jobs; a stock-out, an
interruption, a preempted TPU slice, and a clean end."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from cloudgavel.jobs.spec import AcceleratorRequest, CheckpointPlan, CloudSpec, JobSpec, RunSpec
from cloudgavel.messages import layout
from cloudgavel.messages.codec import encode_lease
from cloudgavel.objects.gcs import GcsStore
from cloudgavel.objects.manifest import manifests
from cloudgavel.objects.pack import put_directory
from cloudgavel.policies.registry import policy_named
from cloudgavel.pricing.catalog import checked_catalog
from cloudgavel.providers.base import EndReason
from cloudgavel.providers.gcp.assembly import gcp_provider
from cloudgavel.providers.gcp.mocked.cloud import PROJECT, FakeGcp, Habits
from cloudgavel.providers.gcp.mocked.inside import mocked_gcp
from cloudgavel.providers.gcp.sweep import find_tagged
from cloudgavel.providers.store_channel import StoreChannel
from cloudgavel.runtime.assemble import bind_policy
from cloudgavel.runtime.loop import Loop, Surroundings
from cloudgavel.runtime.settings import LoopSettings
from cloudgavel.store import events as ev
from cloudgavel.store.log import MemoryLog
from tests.fakes.gcp.machines import Machines
from tests.unit.gcp.project import a_slice, an_offer

pytestmark = [pytest.mark.e2e, pytest.mark.served]

RUN_ID = "on-gcp"
OFFERS = [
    an_offer(price_usd_per_hour=1.0),
    an_offer(zone="us-central1-b", price_usd_per_hour=1.2),
    a_slice(),
]
CLOUD = CloudSpec(provider="gcp", regions=("us-central1",), project=PROJECT)
COUNTER = """
import json, sys, time
from cloudgavel import training
state = {"steps": []}
def save(directory):
    (directory / "state.json").write_text(json.dumps(state))
def load(directory):
    state.update(json.loads((directory / "state.json").read_text()))
for step in training.steps(int(sys.argv[1]), save=save, load=load):
    state["steps"].append(step)
    time.sleep(0.02)
assert state["steps"] == list(range(int(sys.argv[1]))), state["steps"]
print("every step once")
"""
STEPS = 700


def a_job(name: str, accelerator: str, workdir: str) -> JobSpec:
    return JobSpec(
        name=name,
        commands={"any": f"python3 counter.py {STEPS}"},
        steps_total=STEPS,
        accelerators=(AcceleratorRequest(accelerator=accelerator),),
        throughput_steps_per_s={accelerator: 40.0},
        workdir=workdir,
        checkpoint=CheckpointPlan(every_s=1.0, save_s=1.0, restore_s=1.0),
    )


def test_a_run_survives_a_stock_out_and_preemptions_and_ends_clean(tmp_path):
    code = tmp_path / "code"
    code.mkdir()
    (code / "counter.py").write_text(COUNTER)
    fake = FakeGcp(
        now_s=time.time, offers=OFFERS, habits=Habits(pending_s=1.0, list_lag_s=1.0, notice_s=0.5)
    )
    fake.buckets.add("cloudgavel-e2e")
    # The cheapest zone has no machines to give: the run has to fall back to the next.
    fake.faults.stocked_out = lambda zone, kind, spot: (
        zone == "us-central1-a" and not kind.startswith("tpu")
    )
    machines = Machines(fake, tmp_path / "machines")
    with mocked_gcp(fake) as clients, ThreadPoolExecutor(8) as pool:
        store = GcsStore("cloudgavel-e2e", "runs/on-gcp", endpoint=clients.endpoint)
        provider = gcp_provider(
            CLOUD,
            catalog=checked_catalog(OFFERS),
            accelerators={"V100", "tpu-v5litepod-8"},
            store=store,
            environment={"CLOUDGAVEL_GCP_SERVICE_ACCOUNT": "agent@x.iam.gserviceaccount.com"},
            now_s=time.time,
            clients=clients,
            read_prices=False,
        )
        workdir = put_directory(store, code)
        jobs = (a_job("on-gpu", "V100", workdir), a_job("on-tpu", "tpu-v5litepod-8", workdir))
        run = RunSpec(name=RUN_ID, jobs=jobs, budget_usd=50.0, clouds=(CLOUD,), store=store.url)
        log = MemoryLog()
        log.append([ev.RunCreated(at_s=time.time(), run_id=RUN_ID, spec=run, budget_usd=50.0)])
        loop = Loop(
            Surroundings(
                log=log,
                provider=provider,
                channel=StoreChannel(store, now_s=time.time),
                decide=bind_policy(policy_named("min_cost")),
                settings=replace(LoopSettings(), poll_s=0.5, terminate_retry_s=3.0),
                pool=pool,
            )
        )
        try:
            taken = _drive(loop, store, fake, machines)
            assert loop.state.ended == "finished"
            ends = {
                event.instance_id: event.reason
                for _, event in log.read()
                if isinstance(event, ev.InstanceEnded)
            }
            assert {ends.pop(name) for name in taken.values()} == {EndReason.INTERRUPTED}
            assert set(ends.values()) == {EndReason.REQUESTED}
            refused = [
                event.failure for _, event in log.read() if isinstance(event, ev.LaunchFailed)
            ]
            assert refused and set(refused) == {"capacity"}
            for name in ("on-gpu", "on-tpu"):
                attempts = loop.state.jobs[name].attempts
                assert len(attempts) == 2
                assert attempts[1].restored_step and attempts[1].restored_step > 0
            assert find_tagged(clients, PROJECT, run_id=RUN_ID).machines == ()
            deadline_s = time.monotonic() + 20.0
            while machines.alive() and time.monotonic() < deadline_s:
                time.sleep(0.1)
            assert machines.alive() == []
        finally:
            machines.kill_all()
            # Shown by pytest when something failed.
            print(*(event for _, event in log.read()), machines.logs(), sep="\n")


def _drive(loop, store, fake, machines) -> dict[str, str]:
    """Step the loop in real time; take each job's machine when it has saved for the first time."""
    taken: dict[str, str] = {}
    deadline_s = time.monotonic() + 200.0
    while True:
        now_s = time.time()
        store.put(layout.lease_key(), encode_lease(now_s))
        wake_s = loop.step(now_s)
        if wake_s is None:
            return taken
        assert time.monotonic() < deadline_s, (
            loop.state.jobs,
            loop.drain_notes(),
            machines.logs(),
        )
        for job, prefix in (("on-gpu", "cloudgavel-vm-"), ("on-tpu", "cloudgavel-tpu-")):
            if job not in taken and manifests(store, job):
                (name,) = [each for each in machines.alive() if each.startswith(prefix)]
                taken[job] = name
                fake.interrupt(name)
        time.sleep(max(0.05, min(0.3, wake_s - time.time())))
