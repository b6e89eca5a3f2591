"""The fake cloud itself: it refuses what the real one refuses."""

import http.client
import json
from urllib.parse import urlsplit

import pytest

from cloudgavel.providers.gcp.mocked.cloud import PROJECT, Habits, QuotaLimit
from cloudgavel.providers.gcp.translate import (
    instance_body,
    instance_name,
    node_body,
    queued_body,
    request_id,
)
from tests.unit.gcp.project import a_project, a_request, a_slice, an_a100, an_offer, settings

VMS = f"/compute/v1/projects/{PROJECT}/zones/us-central1-a/instances"
TPUS = f"/v2/projects/{PROJECT}/locations/us-central1-a"


def ask(project, method: str, path: str, body=None) -> tuple[int, dict]:
    connection = http.client.HTTPConnection(urlsplit(project.endpoint).netloc, timeout=10)
    connection.request(method, path, body=json.dumps(body) if body is not None else None)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read() or b"{}")


def a_vm(offer=None, token="t", **changes) -> tuple[dict, str]:
    request = a_request(offer or an_offer(), token=token)
    body = instance_body(
        request, settings=settings(), image="i", image_gib=10, start_script="#!/bin/sh"
    )
    return {**body, **changes}, request_id(request)


def test_a_request_id_is_answered_with_the_first_outcome_a_failure_too():
    with a_project() as project:
        body, token = a_vm()
        project.faults.stocked_out = lambda *_: True
        _, first = ask(project, "POST", f"{VMS}?requestId={token}", body)
        project.faults.stocked_out = lambda *_: False
        _, again = ask(project, "POST", f"{VMS}?requestId={token}", body)
        assert again == first
        assert first["error"]["errors"][0]["code"].startswith("ZONE_RESOURCE_POOL_EXHAUSTED")
        assert not project.cloud.vms


@pytest.mark.parametrize(
    ("changes", "query", "status"),
    [
        ({}, "requestId=not-a-uuid", 400),
        ({"machineType": "zones/us-central1-a/machineTypes/n1-nonsense"}, "", 400),
        ({"guestAccelerators": [{"acceleratorType": "nvidia-x", "acceleratorCount": 1}]}, "", 404),
        ({"scheduling": {"onHostMaintenance": "MIGRATE"}}, "", 400),
    ],
)
def test_nonsense_is_refused(changes, query, status):
    with a_project() as project:
        body, _ = a_vm(**changes)
        assert ask(project, "POST", f"{VMS}?{query}", body)[0] == status
        assert not project.cloud.vms


def test_a_name_is_taken_until_its_machine_is_gone():
    with a_project(habits=Habits(stopping_s=10.0)) as project:
        body, _ = a_vm()
        assert ask(project, "POST", VMS, body)[0] == 200
        assert ask(project, "POST", VMS, body)[0] == 409
        assert ask(project, "DELETE", f"{VMS}/{body['name']}")[0] == 200
        assert ask(project, "GET", f"{VMS}/{body['name']}")[1]["status"] == "STOPPING"
        assert ask(project, "POST", VMS, body)[0] == 409
        project.advance_s(10.0)
        assert ask(project, "GET", f"{VMS}/{body['name']}")[0] == 404
        assert ask(project, "DELETE", f"{VMS}/{body['name']}")[0] == 404
        assert ask(project, "POST", VMS, body)[0] == 200


def test_quotas_count_what_runs_by_kind_and_place():
    limits = [
        QuotaLimit(region="us-central1", metric="PREEMPTIBLE_NVIDIA_V100_GPUS", most=1.0),
        QuotaLimit(region="", metric="GPUS_ALL_REGIONS", most=2.0),
    ]
    with a_project(an_offer(), an_a100(), limits=limits) as project:
        assert ask(project, "POST", VMS, a_vm(token="1")[0])[0] == 200
        status, said = ask(project, "POST", VMS, a_vm(token="2")[0])
        assert (status, said["error"]["errors"][0]["reason"]) == (403, "quotaExceeded")
        assert ask(project, "POST", VMS, a_vm(an_a100(), token="3")[0])[0] == 200
        status, said = ask(project, "POST", VMS, a_vm(an_a100(), token="4")[0])
        assert (status, "GPUS_ALL_REGIONS" in said["error"]["message"]) == (403, True)
        name = a_vm(token="1")[0]["name"]
        ask(project, "DELETE", f"{VMS}/{name}")
        assert ask(project, "POST", VMS, a_vm(token="2")[0])[0] == 200


def test_a_machine_lives_as_long_as_it_may_run():
    with a_project(habits=Habits(pending_s=30.0)) as project:
        body, _ = a_vm()
        body["scheduling"]["maxRunDuration"] = {"seconds": "100"}
        ask(project, "POST", VMS, body)
        project.advance_s(129.0)
        assert project.cloud.status(body["name"]) == "RUNNING"
        project.advance_s(2.0)
        assert project.cloud.status(body["name"]) is None


def test_a_spot_machine_stops_for_its_notice_and_is_gone_or_stays():
    with a_project() as project:
        for token, stays in (("1", False), ("2", True)):
            project.faults.preempted_stay = stays
            body, _ = a_vm(token=token)
            ask(project, "POST", VMS, body)
            project.cloud.interrupt(body["name"])
            assert project.cloud.status(body["name"]) == "STOPPING"
            project.advance_s(30.0)
            assert project.cloud.status(body["name"]) == ("TERMINATED" if stays else None)
        path = f"/compute/v1/projects/{PROJECT}/zones/us-central1-a/operations"
        _, listed = ask(project, "GET", f"{path}?filter=(operationType%20=%20%22x%22)")
        assert listed["items"] == []
        kinds = [each["operationType"] for each in ask(project, "GET", path)[1]["items"]]
        assert kinds.count("compute.instances.preempted") == 2


def test_an_on_demand_machine_is_not_taken():
    with a_project() as project:
        body, _ = a_vm(an_a100())
        ask(project, "POST", VMS, body)
        project.cloud.interrupt(body["name"])
        project.advance_s(1_000.0)
        assert project.cloud.status(body["name"]) == "RUNNING"


def test_a_queued_slice_waits_runs_is_suspended_and_goes_only_by_force():
    request = a_request(a_slice())
    name = instance_name(request)
    node = node_body(request, settings=settings(), start_script="#!/bin/sh")
    body = queued_body(node, name=name, parent=TPUS.removeprefix("/v2/"), wait_s=1_000.0)

    with a_project(a_slice(), habits=Habits(pending_s=30.0)) as project:

        def state() -> str:
            return ask(project, "GET", f"{TPUS}/queuedResources/{name}")[1]["state"]["state"]

        project.faults.stocked_out = lambda *_: True
        ask(project, "POST", f"{TPUS}/queuedResources?queuedResourceId={name}", body)
        assert state() == "WAITING_FOR_RESOURCES"
        project.faults.stocked_out = lambda *_: False
        assert state() == "PROVISIONING"
        project.advance_s(30.0)
        assert state() == "ACTIVE"
        assert ask(project, "DELETE", f"{TPUS}/nodes/{name}")[0] == 400
        project.cloud.interrupt(name, at_s=project.clock.now_s())
        assert state() == "SUSPENDED"
        assert ask(project, "GET", f"{TPUS}/nodes/{name}")[1]["state"] == "PREEMPTED"
        assert ask(project, "DELETE", f"{TPUS}/queuedResources/{name}")[0] == 400
        assert ask(project, "DELETE", f"{TPUS}/queuedResources/{name}?force=true")[0] == 200
        assert ask(project, "GET", f"{TPUS}/nodes/{name}")[0] == 404


def test_a_request_in_the_queue_fails_when_its_time_is_over():
    request = a_request(a_slice())
    name = instance_name(request)
    node = node_body(request, settings=settings(), start_script="#!/bin/sh")
    body = queued_body(node, name=name, parent=TPUS.removeprefix("/v2/"), wait_s=10.0)
    with a_project(a_slice()) as project:
        project.faults.stocked_out = lambda *_: True
        ask(project, "POST", f"{TPUS}/queuedResources?queuedResourceId={name}", body)
        project.advance_s(11.0)
        project.faults.stocked_out = lambda *_: False
        _, told = ask(project, "GET", f"{TPUS}/queuedResources/{name}")
        assert told["state"]["state"] == "FAILED"


def test_what_the_fake_does_not_have_is_an_error_and_not_a_success():
    with a_project() as project:
        assert ask(project, "GET", "/compute/v1/projects/p/global/firewalls")[0] == 404
        assert ask(project, "PUT", "/nothing", {})[0] == 404
