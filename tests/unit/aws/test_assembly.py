"""From what was asked for to a provider; and what importing it costs."""

import subprocess
import sys

import pytest
from botocore.exceptions import ClientError

from cloudgavel.errors import UsageError
from cloudgavel.jobs.spec import CloudSpec
from cloudgavel.objects.files import FileStore
from cloudgavel.objects.s3 import S3Store
from cloudgavel.pricing.bundled import bundled_catalog
from cloudgavel.providers.aws.assembly import aws_provider, aws_settings
from cloudgavel.providers.aws.mocked.inside import mocked_aws
from cloudgavel.providers.aws.mocked.layer import MotoLayer
from cloudgavel.providers.base import MachineState, Provider
from tests.unit.aws.account import AGENT, RUN_ID, START_AT_S, a_request


def test_a_whole_dry_run_of_a_launch_from_the_bundled_catalogue():
    catalog = bundled_catalog()
    calls = []
    layer = MotoLayer(now_s=lambda: START_AT_S, offers=catalog.search(providers={"aws"}))
    with mocked_aws(layer, on_call=calls.append) as clients:
        s3 = clients.client("s3", "us-east-1")
        s3.create_bucket(Bucket="mine")
        provider = aws_provider(
            CloudSpec(provider="aws", regions=("us-east-1",), max_instances=3),
            catalog=catalog,
            accelerators={"V100", "A10G"},
            store=S3Store("mine", "runs/x", client=s3),
            environment={"CLOUDGAVEL_AWS_INSTANCE_PROFILE": "cloudgavel-agent"},
            now_s=lambda: START_AT_S,
            clients=clients,
            read_spot_prices=False,
        )
        assert isinstance(provider, Provider)
        offers = provider.offers()
        assert {offer.accelerator for offer in offers} == {"V100", "A10G"}
        (own,) = [each for each in provider.quotas() if each.name == "aws max_instances"]
        assert own.limit == 3.0
        assert set(own.units_per_instance) >= {offer.offer_id for offer in offers}
        for number, offer in enumerate(offers[::20]):
            launched = provider.launch(a_request(offer, token=str(number)))
            assert launched.state is MachineState.PENDING
            assert launched.price_usd_per_hour == offer.price_usd_per_hour
        assert len(provider.list_instances(RUN_ID)) == len(offers[::20])
    launches = [call for call in calls if call.operation == "RunInstances"]
    assert len(launches) == len(offers[::20])
    assert "s3://mine/runs/x/agent/" in launches[0].parameters["UserData"]


def test_without_regions_all_of_the_catalogue_are_meant():
    found = aws_settings(
        CloudSpec(provider="aws"),
        catalog=bundled_catalog(),
        store_url="s3://mine/runs/x",
        agent=AGENT,
        environment={},
    )
    assert found.regions == ("eu-west-1", "us-east-1", "us-east-2", "us-west-2")
    assert found.instance_profile is None


def test_a_store_on_this_disk_cannot_serve_machines_on_aws(tmp_path):
    with pytest.raises(UsageError, match="cannot reach this store"):
        aws_settings(
            CloudSpec(provider="aws"),
            catalog=bundled_catalog(),
            store_url=FileStore(tmp_path).url,
            agent=AGENT,
            environment={},
        )


def test_a_cap_that_is_no_price_is_refused():
    with pytest.raises(UsageError, match="CLOUDGAVEL_AWS_SPOT_CAP"):
        aws_settings(
            CloudSpec(provider="aws"),
            catalog=bundled_catalog(),
            store_url="s3://mine/runs/x",
            agent=AGENT,
            environment={"CLOUDGAVEL_AWS_SPOT_CAP_USD_PER_HOUR": "cheap"},
        )


def test_importing_the_provider_the_store_and_the_checks_loads_no_sdk():
    modules = (
        "cloudgavel.providers.aws.assembly",
        "cloudgavel.providers.aws.checks",
        "cloudgavel.providers.aws.sweep",
        "cloudgavel.providers.aws.mocked.inside",
        "cloudgavel.objects.open",
        "cloudgavel.cli.commands.check",
    )
    code = (
        "import sys\n"
        + "".join(f"import {module}\n" for module in modules)
        + "print([m for m in ('boto3', 'botocore', 'moto', 'tenacity') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_service_that_is_not_mocked_answers_an_error_and_nothing_leaves():
    layer = MotoLayer(now_s=lambda: START_AT_S, offers=())
    with mocked_aws(layer) as clients, pytest.raises(ClientError):
        clients.client("outposts", "us-east-1").list_sites()


def test_a_call_to_another_host_is_stopped_before_it_leaves():
    layer = MotoLayer(now_s=lambda: START_AT_S, offers=())
    with mocked_aws(layer) as clients:
        s3 = clients.client("s3", "us-east-1")
        s3.meta.events.register(
            "before-sign", lambda request, **_: setattr(request, "url", "https://example.org/x")
        )
        with pytest.raises(Exception, match="no mocked service answers") as caught:
            s3.list_buckets()
        assert "socket" not in str(caught.value)
