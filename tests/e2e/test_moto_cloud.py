"""The provider against a served cloud whose machines are real agents speaking to S3."""

import time

import pytest

from cloudgavel.messages import layout
from cloudgavel.messages.codec import decode_report, encode_lease
from cloudgavel.objects.s3 import S3Store
from cloudgavel.objects.store import ObjectMissing
from cloudgavel.providers.aws.provider import AwsProvider
from cloudgavel.providers.aws.settings import AwsSettings
from cloudgavel.providers.aws.sweep import end_tagged, find_tagged
from cloudgavel.providers.base import EndReason, MachineState
from cloudgavel.providers.bundle import upload_agent
from cloudgavel.providers.failures import FailureKind, LaunchFailed
from tests.unit.aws.account import RUN_ID, a_limit, a_request, a_spot_offer, an_offer

pytest.importorskip("flask", reason="the moto server needs moto[server]")

from tests.e2e.moto_cloud.machines import Machines
from tests.e2e.moto_cloud.server import moto_cloud

pytestmark = pytest.mark.e2e

OD, SPOT = an_offer(), a_spot_offer()
STORE_URL = "s3://cloudgavel-e2e/runs/quickstart"


@pytest.fixture
def cloud():
    with moto_cloud([OD, SPOT, a_spot_offer(zone="use1-az2")], limits=[a_limit()]) as served:
        served.clients.client("s3", "us-east-1").create_bucket(Bucket="cloudgavel-e2e")
        yield served


@pytest.fixture
def store(cloud):
    return S3Store.from_url(STORE_URL, client=cloud.clients.client("s3", "us-east-1"))


@pytest.fixture
def provider(cloud, store):
    return AwsProvider(
        settings=AwsSettings(
            regions=("us-east-1",), store_url=STORE_URL, agent=upload_agent(store)
        ),
        catalogue=[OD, SPOT, a_spot_offer(zone="use1-az2")],
        now_s=time.time,
        clients=cloud.clients,
    )


@pytest.fixture
def machines(cloud, tmp_path):
    running = Machines(cloud, tmp_path / "machines")
    yield running
    running.kill_all()


def eventually(holds, *, within_s: float = 60.0):
    """Wait for something to hold; its value is returned."""
    deadline_s = time.monotonic() + within_s
    while True:
        value = holds()
        if value:
            return value
        assert time.monotonic() < deadline_s, "it never came to hold"
        time.sleep(0.1)


def reported(store, instance_id):
    try:
        return decode_report(store.get(layout.report_key(instance_id)))
    except ObjectMissing:
        return None


def test_a_launched_machine_is_an_agent_that_reports_until_it_is_taken(
    cloud, store, provider, machines
):
    store.put(layout.lease_key(), encode_lease(time.time()))
    spot = provider.launch(a_request(SPOT, token="1"))
    steady = provider.launch(a_request(OD, token="2"))
    assert provider.launch(a_request(SPOT, token="1")).instance_id == spot.instance_id
    for instance in (spot, steady):
        report = eventually(lambda each=instance: reported(store, each.instance_id))
        assert (report.run_id, report.instance_id) == (RUN_ID, instance.instance_id)
    assert sorted(machines.alive()) == sorted([spot.instance_id, steady.instance_id])

    cloud.layer.interrupt(spot.instance_id)
    listed = {each.instance_id: each for each in provider.list_instances(RUN_ID)}
    assert listed[spot.instance_id].end_reason is EndReason.INTERRUPTED
    assert listed[steady.instance_id].state is MachineState.RUNNING
    assert machines.alive() == [steady.instance_id]

    found = find_tagged(cloud.clients, None, RUN_ID)
    assert [each.instance_id for each in found.instances] == [steady.instance_id]
    assert end_tagged(cloud.clients, found.instances) == {}
    assert find_tagged(cloud.clients, None, RUN_ID).instances == ()
    assert machines.alive() == []


def test_a_stock_out_a_quota_and_a_lost_answer_look_the_same_over_the_wire(cloud, provider):
    cloud.layer.faults.stocked_out = lambda zone, kind, is_spot: zone == "us-east-1b" and is_spot
    with pytest.raises(LaunchFailed) as caught:
        provider.launch(a_request(SPOT))
    assert caught.value.kind is FailureKind.CAPACITY
    other = a_spot_offer(zone="use1-az2")
    assert provider.launch(a_request(other)).offer_id == other.offer_id

    cloud.layer.faults.unanswered["RunInstances"] = 1
    with pytest.raises(LaunchFailed) as caught:
        provider.launch(a_request(OD, token="3"))
    assert caught.value.kind is FailureKind.UNREACHABLE
    again = provider.launch(a_request(OD, token="3"))
    assert len(cloud.layer.live_ids()) == 2
    assert again.instance_id in cloud.layer.live_ids()

    cloud.layer.limits = [a_limit(vcpus=4.0)]
    with pytest.raises(LaunchFailed) as caught:
        provider.launch(a_request(OD, token="4"))
    assert caught.value.kind is FailureKind.QUOTA
