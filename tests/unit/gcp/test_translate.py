"""Names, bodies and what is wrong with them."""

import json
import re
import uuid

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from cloudgavel.pricing.bundled import bundled_catalog
from cloudgavel.pricing.offer import CapacityType
from cloudgavel.providers.failures import FailureKind
from cloudgavel.providers.gcp import validate
from cloudgavel.providers.gcp.facts import ImageFacts, ZoneFacts
from cloudgavel.providers.gcp.startup import start_script
from cloudgavel.providers.gcp.translate import (
    GPU_TYPES,
    TPU_RUNTIMES,
    host_and_gpus,
    hosts_of_slice,
    instance_body,
    instance_name,
    is_tpu_offer,
    node_body,
    queued_body,
    request_id,
    tpu_family,
)
from tests.unit.gcp.project import ACCOUNT, a_request, a_slice, an_a100, an_offer, settings

IMAGE = ImageFacts(link="projects/p/global/images/i", status="READY", disk_gib=50)


def a_body(request, **changes):
    given_settings = settings(**changes)
    return instance_body(
        request,
        settings=given_settings,
        image=IMAGE.link,
        image_gib=IMAGE.disk_gib,
        start_script=start_script(
            given_settings,
            run_id=request.run_id,
            instance_id=instance_name(request),
            zone=request.offer.zone,
            is_tpu=False,
        ),
    )


def problems_of(body, offer, image=IMAGE):
    token = request_id(a_request(offer))
    return validate.instance_problems(body, request_id=token, offer=offer, image=image)


def codes(problems) -> set[str]:
    return {problem.code for problem in problems}


@given(token=st.text(min_size=1, max_size=300), run_id=st.text(min_size=1, max_size=100))
@hypothesis_settings(deadline=None, max_examples=50)
def test_whatever_the_token_names_labels_and_ids_are_googles(token, run_id):
    request = a_request(an_offer(), token=token, run_id=run_id)
    body = a_body(request)
    assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", body["name"])
    assert uuid.UUID(request_id(request)).int
    assert problems_of(body, an_offer()) == [] or len(body["description"]) > 2048
    assert json.loads(body["description"])["token"] == token


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("12"), st.sampled_from("xy"))))
@hypothesis_settings(deadline=None, max_examples=30)
def test_requests_share_a_name_and_an_id_only_if_they_are_the_same(wanted):
    requests = [
        a_request(an_offer(zone=f"us-central1-{zone}"), token=token, run_id=run)
        for zone, token, run in wanted
    ]
    for key in (instance_name, request_id):
        assert len({key(request) for request in requests}) == len(set(wanted))


def test_spot_scheduling_ends_by_deletion_and_never_restarts():
    body = a_body(a_request(an_offer()), lifetime_s=3_600.0)
    assert body["scheduling"] == {
        "provisioningModel": "SPOT",
        "instanceTerminationAction": "DELETE",
        "onHostMaintenance": "TERMINATE",
        "automaticRestart": False,
        "maxRunDuration": {"seconds": "4200"},
    }
    assert body["serviceAccounts"][0]["email"] == ACCOUNT


def test_gpus_are_attached_to_n1_only():
    n1 = a_body(a_request(an_offer(instance_type="n1-standard-32+4xV100")))
    assert n1["machineType"] == "zones/us-central1-a/machineTypes/n1-standard-32"
    assert n1["guestAccelerators"] == [
        {
            "acceleratorType": "zones/us-central1-a/acceleratorTypes/nvidia-tesla-v100",
            "acceleratorCount": 4,
        }
    ]
    a2 = a_body(a_request(an_a100()))
    assert "guestAccelerators" not in a2
    assert a2["scheduling"]["provisioningModel"] == "STANDARD"
    assert a2["scheduling"]["maxRunDuration"]


def test_networks_are_the_settings():
    body = a_body(
        a_request(an_offer()),
        external_ip=False,
        subnetwork_by_region={"us-central1": "regions/us-central1/subnetworks/mine"},
    )
    (network,) = body["networkInterfaces"]
    assert network["subnetwork"] == "regions/us-central1/subnetworks/mine"
    assert "accessConfigs" not in network


def test_a_queued_slice_carries_its_node_and_bounds_its_wait():
    request = a_request(a_slice())
    node = node_body(request, settings=settings(), start_script="#!/bin/sh")
    body = queued_body(node, name="n", parent="projects/p/locations/z", wait_s=90.0)
    (spec,) = body["tpu"]["nodeSpec"]
    assert (spec["nodeId"], spec["parent"]) == ("n", "projects/p/locations/z")
    assert "schedulingConfig" not in spec["node"]
    assert body["queueingPolicy"] == {"validUntilDuration": "90s"}
    assert body["spot"] == {}


@pytest.mark.parametrize(
    ("slice_type", "hosts"),
    [
        ("tpu-v2-8", 1),
        ("tpu-v2-32", 4),
        ("tpu-v3-8", 1),
        ("tpu-v4-8", 1),
        ("tpu-v4-16", 2),
        ("tpu-v5p-8", 1),
        ("tpu-v5litepod-1", 1),
        ("tpu-v5litepod-8", 1),
        ("tpu-v5litepod-16", 4),
        ("tpu-v6e-8", 1),
        ("tpu-v6e-16", 4),
    ],
)
def test_hosts_of_a_slice(slice_type, hosts):
    assert hosts_of_slice(slice_type) == hosts


def test_every_offer_of_the_bundled_catalogue_can_be_asked_for_or_says_why_not():
    asked = 0
    for offer in bundled_catalog().offers:
        if offer.provider != "gcp" or validate.unrentable(offer) is not None:
            continue
        asked += 1
        request = a_request(offer)
        if is_tpu_offer(offer):
            body = node_body(request, settings=settings(), start_script="#!/bin/sh")
            assert tpu_family(offer.instance_type) in TPU_RUNTIMES
            name = instance_name(request)
            assert validate.node_problems(body, name=name, offer=offer) == []
        else:
            host, gpu, count = host_and_gpus(offer.instance_type)
            zone = ZoneFacts(
                zone=offer.zone,
                machine_types=frozenset({host}),
                gpus={GPU_TYPES.get(gpu, ""): count},
            )
            assert validate.offer_problems(offer, zone, in_catalogue=True) == []
            assert problems_of(a_body(request), offer) == []
    assert asked > 200


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"machineType": "zones/us-central1-b/machineTypes/n1-standard-8"}, "WrongType"),
        ({"guestAccelerators": []}, "WrongGpus"),
        ({"labels": {}}, "NoLabels"),
        ({"labels": {"Key": "v"}}, "BadLabel"),
        ({"labels": {"key": "Upper"}}, "BadLabel"),
        ({"name": "Upper"}, "BadName"),
        ({"networkInterfaces": []}, "NoNetwork"),
        ({"metadata": {"items": []}}, "NoScript"),
        (
            {"metadata": {"items": [{"key": "startup-script", "value": "x" * 20_000}]}},
            "ScriptTooLarge",
        ),
        ({"disks": []}, "NoBootDisk"),
    ],
)
def test_what_is_wrong_with_a_body_is_said(change, code):
    offer = an_offer()
    body = {**a_body(a_request(offer)), **change}
    found = problems_of(body, offer)
    assert code in codes(found)
    assert all(problem.kind is FailureKind.INVALID for problem in found)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"provisioningModel": "STANDARD"}, "WrongMarket"),
        ({"instanceTerminationAction": "STOP"}, "StaysBehind"),
        ({"onHostMaintenance": "MIGRATE"}, "CannotMigrate"),
        ({"automaticRestart": True}, "RestartsItself"),
        ({"maxRunDuration": {}}, "OutlivesItself"),
        ({"maxRunDuration": {"seconds": str(121 * 86_400)}}, "OutlivesItself"),
    ],
)
def test_what_is_wrong_with_its_scheduling_is_said(change, code):
    body = a_body(a_request(an_offer()))
    body["scheduling"] = {**body["scheduling"], **change}
    assert code in codes(problems_of(body, an_offer()))


def test_disks_hold_the_image_and_go_with_the_machine():
    offer = an_offer()
    body = a_body(a_request(offer), disk_gib=10)
    assert body["disks"][0]["initializeParams"]["diskSizeGb"] == "50"
    body["disks"][0]["autoDelete"] = False
    body["disks"][0]["initializeParams"]["diskSizeGb"] = "10"
    assert {"DiskStays", "DiskSize"} <= codes(problems_of(body, offer))
    pending = ImageFacts(link=IMAGE.link, status="PENDING", disk_gib=None)
    assert "ImageNotReady" in codes(problems_of(a_body(a_request(offer)), offer, pending))


def test_a_spot_slice_is_not_asked_for_on_demand():
    offer = a_slice()
    node = node_body(a_request(offer), settings=settings(), start_script="#!/bin/sh")
    node["schedulingConfig"] = {"spot": False}
    assert codes(validate.node_problems(node, name="n", offer=offer)) == {"WrongMarket"}


def test_more_cards_than_the_zone_gives_to_a_machine_are_capacity():
    offer = an_offer(instance_type="n1-standard-32+8xV100", accelerators_per_instance=8)
    zone = ZoneFacts(
        zone=offer.zone,
        machine_types=frozenset({"n1-standard-32"}),
        gpus={"nvidia-tesla-v100": 4},
    )
    (problem,) = validate.offer_problems(offer, zone, in_catalogue=True)
    assert problem.kind is FailureKind.CAPACITY
    assert "at most 4 V100" in problem.message


def test_an_offer_of_another_cloud_is_refused():
    offer = an_offer(provider="aws")
    assert codes(validate.offer_problems(offer, None, in_catalogue=True)) == {"NotGcp"}


def test_reserved_capacity_is_not_launched_here():
    assert validate.unrentable(an_offer(capacity_type=CapacityType.RESERVED))
