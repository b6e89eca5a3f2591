"""A whole run on served AWS: real agents, a real job, a stock-out, an interruption, a clean end."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from cloudgavel.jobs.spec import AcceleratorRequest, CheckpointPlan, CloudSpec, JobSpec, RunSpec
from cloudgavel.messages import layout
from cloudgavel.messages.codec import encode_lease
from cloudgavel.objects.manifest import manifests
from cloudgavel.objects.pack import put_directory
from cloudgavel.objects.s3 import S3Store
from cloudgavel.policies.registry import policy_named
from cloudgavel.pricing.catalog import checked_catalog
from cloudgavel.providers.aws.assembly import aws_provider
from cloudgavel.providers.aws.mocked.layer import Habits
from cloudgavel.providers.aws.sweep import find_tagged
from cloudgavel.providers.base import EndReason
from cloudgavel.providers.store_channel import StoreChannel
from cloudgavel.runtime.assemble import bind_policy
from cloudgavel.runtime.loop import Loop, Surroundings
from cloudgavel.runtime.settings import LoopSettings
from cloudgavel.store import events as ev
from cloudgavel.store.log import MemoryLog
from tests.unit.aws.account import a_spot_offer, an_offer

pytest.importorskip("flask", reason="the moto server needs moto[server]")

from tests.e2e.moto_cloud.machines import Machines
from tests.e2e.moto_cloud.server import moto_cloud

pytestmark = [pytest.mark.e2e, pytest.mark.served]

RUN_ID = "on-aws"
STORE_URL = "s3://cloudgavel-e2e/runs/on-aws"
OFFERS = [
    an_offer(),
    a_spot_offer(price_usd_per_hour=0.30),
    a_spot_offer(zone="use1-az2", price_usd_per_hour=0.40),
]
CLOUD = CloudSpec(provider="aws", regions=("us-east-1",))
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


def test_a_run_survives_a_stock_out_and_an_interruption_and_ends_clean(tmp_path):
    code = tmp_path / "code"
    code.mkdir()
    (code / "counter.py").write_text(COUNTER)
    with moto_cloud(OFFERS, habits=Habits(pending_s=1.0, list_lag_s=1.0)) as cloud:
        client = cloud.clients.client("s3", "us-east-1")
        client.create_bucket(Bucket="cloudgavel-e2e")
        store = S3Store.from_url(STORE_URL, client=client)
        machines = Machines(cloud, tmp_path / "machines")
        # The cheapest zone has nothing to give: the run has to fall back to the next.
        cloud.layer.faults.stocked_out = lambda zone, kind, spot: spot and zone == "us-east-1b"
        provider = aws_provider(
            CLOUD,
            catalog=checked_catalog(OFFERS),
            accelerators={"A10G"},
            store=store,
            environment={"CLOUDGAVEL_AWS_INSTANCE_PROFILE": "cloudgavel-agent"},
            now_s=time.time,
            clients=cloud.clients,
        )
        job = JobSpec(
            name="counter",
            commands={"any": f"python counter.py {STEPS}"},
            steps_total=STEPS,
            accelerators=(AcceleratorRequest(accelerator="A10G"),),
            throughput_steps_per_s={"A10G": 40.0},
            workdir=put_directory(store, code),
            checkpoint=CheckpointPlan(every_s=1.0, save_s=1.0, restore_s=1.0),
        )
        run = RunSpec(name="on-aws", jobs=(job,), budget_usd=20.0, clouds=(CLOUD,), store=STORE_URL)
        log = MemoryLog()
        log.append([ev.RunCreated(at_s=time.time(), run_id=RUN_ID, spec=run, budget_usd=20.0)])
        with ThreadPoolExecutor(8) as pool:
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
                interrupted = _drive(loop, store, cloud)
            finally:
                machines.kill_all()
        assert loop.state.ended == "finished", loop.drain_notes()
        assert interrupted is not None
        ends = {
            event.instance_id: event.reason
            for _, event in log.read()
            if isinstance(event, ev.InstanceEnded)
        }
        assert ends.pop(interrupted) is EndReason.INTERRUPTED
        assert set(ends.values()) == {EndReason.REQUESTED}
        refused = [e.failure for _, e in log.read() if isinstance(e, ev.LaunchFailed)]
        assert refused and set(refused) == {"capacity"}
        attempts = loop.state.jobs["counter"].attempts
        assert len(attempts) == 2
        assert attempts[1].restored_step and attempts[1].restored_step > 0
        assert loop.state.spent_usd > 0
        assert find_tagged(cloud.clients, None, RUN_ID).instances == ()
        assert machines.alive() == []


def _drive(loop, store, cloud) -> str | None:
    """Step the loop in real time; take the machine when its job has saved for the first time."""
    interrupted = None
    deadline_s = time.monotonic() + 150.0
    while True:
        now_s = time.time()
        store.put(layout.lease_key(), encode_lease(now_s))
        wake_s = loop.step(now_s)
        if wake_s is None:
            return interrupted
        assert time.monotonic() < deadline_s, (loop.state.jobs, loop.drain_notes())
        if interrupted is None and manifests(store, "counter"):
            (interrupted,) = cloud.layer.live_ids()
            cloud.layer.interrupt(interrupted)
        time.sleep(max(0.05, min(0.3, wake_s - time.time())))
