"""From what a run asks for to settings, and what `check` says before it."""

import subprocess
import sys
import time

import pytest

from cloudgavel.documents.check import CheckStatus
from cloudgavel.errors import UsageError
from cloudgavel.jobs.spec import CloudSpec
from cloudgavel.objects.gcs import GcsStore
from cloudgavel.pricing.catalog import Catalog
from cloudgavel.providers.base import MachineState
from cloudgavel.providers.gcp.assembly import gcp_provider, gcp_settings
from cloudgavel.providers.gcp.checks import check_gcp
from cloudgavel.providers.gcp.mocked.cloud import PROJECT, QuotaLimit
from tests.unit.gcp.project import (
    AGENT,
    a_project,
    a_request,
    a_slice,
    an_a100,
    an_offer,
    settings,
)

CATALOG = Catalog(offers=(an_offer(), an_a100(region="us-east1", zone="us-east1-b"), a_slice()))


def settings_of(cloud: CloudSpec, environment=None, store_url="gs://runs/r"):
    return gcp_settings(
        cloud, catalog=CATALOG, store_url=store_url, agent=AGENT, environment=environment or {}
    )


def test_a_run_without_regions_has_all_of_the_catalogue():
    made = settings_of(CloudSpec(provider="gcp", project="p", max_instances=3))
    assert made.regions == ("us-central1", "us-east1")
    assert made.max_instances == 3
    assert made.service_account is None


def test_the_environment_says_how_machines_are_made():
    made = settings_of(
        CloudSpec(provider="gcp", project="p"),
        {
            "CLOUDGAVEL_GCP_SERVICE_ACCOUNT": "a@p.iam.gserviceaccount.com",
            "CLOUDGAVEL_GCP_IMAGE_FAMILY": "mine/pytorch",
            "CLOUDGAVEL_GCP_DISK_GIB": "500",
            "CLOUDGAVEL_GCP_EXTERNAL_IP": "no",
            "CLOUDGAVEL_GCP_TPU_QUEUE_WAIT_S": "120",
        },
    )
    assert made.service_account == "a@p.iam.gserviceaccount.com"
    assert (made.image_project, made.image_family) == ("mine", "pytorch")
    assert (made.disk_gib, made.external_ip, made.tpu_queue_wait_s) == (500, False, 120.0)


@pytest.mark.parametrize(
    ("cloud", "environment", "store_url", "said"),
    [
        (CloudSpec(provider="gcp", project="p"), {}, "file:///runs", "cannot reach this store"),
        (CloudSpec(provider="gcp"), {}, "gs://runs/r", "no project"),
        (CloudSpec(provider="gcp", project="p", regions=("mars-1",)), {}, "gs://r/r", "mars-1"),
        (
            CloudSpec(provider="gcp", project="p"),
            {"CLOUDGAVEL_GCP_DISK_GIB": "many"},
            "gs://runs/r",
            "not a positive number",
        ),
    ],
)
def test_what_cannot_work_is_told(cloud, environment, store_url, said):
    with pytest.raises(UsageError, match=said):
        settings_of(cloud, environment, store_url)


def test_an_assembled_provider_puts_the_agent_into_the_store_and_launches():
    with a_project(*CATALOG.offers) as project:
        store = GcsStore("runs", "r", endpoint=project.endpoint)
        provider = gcp_provider(
            CloudSpec(provider="gcp", project=PROJECT, max_instances=2),
            catalog=CATALOG,
            accelerators=["V100"],
            store=store,
            environment={},
            now_s=project.clock.now_s,
            clients=project.clients,
            read_prices=False,
            pause=project.pause,
        )
        assert [offer.offer_id for offer in provider.offers()] == [an_offer().offer_id]
        (own,) = [quota for quota in provider.quotas() if quota.name == "gcp max_instances"]
        assert own.limit == 2.0
        assert provider.launch(a_request(an_offer())).state is MachineState.PENDING
        (info,) = store.list("agent/")
        (vm,) = project.cloud.vms.values()
        assert info.key.rpartition("/")[2] in vm.start_script
        assert store.url.partition("?")[2]
        assert f"STORE_URL='{store.url}'" in vm.start_script


def checked(project, **changes):
    given = changes.pop("given", settings())
    return check_gcp(
        project.clients,
        settings=given,
        offers=project.offers,
        now_s=changes.pop("now_s", time.time),
    )


def test_a_project_in_order_passes_every_line():
    limits = [
        QuotaLimit(region="us-central1", metric="PREEMPTIBLE_NVIDIA_V100_GPUS", most=8.0),
        QuotaLimit(region="", metric="GPUS_ALL_REGIONS", most=8.0),
    ]
    with a_project(an_offer(), limits=limits) as project:
        lines = checked(project)
    assert {line.status for line in lines} == {CheckStatus.PASSED}, lines
    assert {"credentials", "clock", "permission", "image", "zones", "quota"} == {
        line.subject for line in lines
    }


def test_what_is_missing_is_told_with_what_to_do():
    limits = [QuotaLimit(region="us-central1", metric="NVIDIA_V100_GPUS", most=0.0)]
    with a_project(an_offer(), a_slice(), limits=limits) as project:
        project.cloud.denied_permissions = {"compute.instances.create", "tpu.nodes.create"}
        lines = checked(
            project,
            given=settings(service_account=None, image_family="gone"),
            now_s=lambda: time.time() - 3_600.0,
        )
    wrong = {line.detail: line for line in lines if line.status is not CheckStatus.PASSED}
    assert wrong["compute.instances.create denied"].status is CheckStatus.FAILED
    assert wrong["tpu.nodes.create denied"].hint
    assert any("behind Google" in detail for detail in wrong)
    assert any("gone" in detail for detail in wrong)
    assert "at least 1" in wrong["0 NVIDIA_V100_GPUS"].hint
    assert {"service account", "clock", "permission", "image", "quota"} == {
        line.subject for line in wrong.values()
    }


def test_a_wrong_project_and_a_missing_api_are_one_failed_line():
    with a_project() as project:
        (line,) = checked(project, given=settings(project="nobodys"))
        assert (line.status, line.subject) == (CheckStatus.FAILED, "credentials")
        project.faults.refuse_next("projects.get", 403, "accessNotConfigured")
        (line,) = checked(project)
        assert "gcloud services enable" in line.hint


def test_limits_that_are_not_told_are_a_warning():
    with a_project(an_offer()) as project:
        project.faults.refuse_next("regions.get", 403, "forbidden")
        lines = [line for line in checked(project) if line.subject == "quota"]
        assert [line.status for line in lines] == [CheckStatus.WARNING]
        lines = [line for line in checked(project) if line.subject == "quota"]
        assert "no limit is told for V100 spot" in lines[0].detail


def test_googles_clients_are_imported_by_the_first_call_only():
    code = (
        "import sys; import cloudgavel.providers.gcp.assembly, cloudgavel.providers.gcp.checks,"
        " cloudgavel.providers.gcp.sweep, cloudgavel.providers.gcp.mocked.inside;"
        "print([m for m in sys.modules if m.split('.')[0] in ('google', 'grpc', 'requests')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
