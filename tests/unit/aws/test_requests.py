"""What is wrong with a request is said before the call; codes mean what they mean."""

import copy
import subprocess

import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError, NoCredentialsError

from cloudgavel.providers.aws.failures import explain
from cloudgavel.providers.aws.images import (
    CLOSED_DRIVER,
    NEURON,
    OPEN_DRIVER,
    OPEN_DRIVER_ARM,
    Image,
    ImageNotFound,
    Images,
    architecture_of,
    family_for,
)
from cloudgavel.providers.aws.places import Place
from cloudgavel.providers.aws.translate import run_instances_parameters
from cloudgavel.providers.aws.user_data import MOST_BYTES, start_script
from cloudgavel.providers.aws.validate import offer_problems, request_problems
from cloudgavel.providers.failures import FailureKind
from tests.unit.aws.account import (
    RUN_ID,
    START_AT_S,
    a_request,
    a_spot_offer,
    an_account,
    an_offer,
    settings,
)

IMAGE = Image(
    image_id="ami-1",
    name="Deep Learning",
    architecture="x86_64",
    root_device="/dev/sda1",
    snapshot_gib=100,
    state="available",
)
PLACE = Place(
    region="us-east-1",
    zone_name_by_id={"use1-az1": "us-east-1b"},
    offered=frozenset({("us-east-1b", "g5.xlarge")}),
    seen_at_s=START_AT_S,
)
SPOT = a_spot_offer()


def parameters(offer=SPOT, **changes):
    return run_instances_parameters(
        a_request(offer),
        settings=settings(**changes),
        zone_name="us-east-1b",
        image=IMAGE,
        user_data=start_script(settings(**changes), run_id=RUN_ID),
    )


def problems(asked, offer=SPOT, image=IMAGE):
    return [each.code for each in request_problems(asked, offer=offer, place=PLACE, image=image)]


def test_a_good_request_has_no_problem():
    assert problems(parameters()) == []
    on_demand = an_offer()
    assert problems(parameters(on_demand), on_demand) == []


def _set(path, value):
    def change(asked):
        *way, last = path
        inner = asked
        for step in way:
            inner = inner[step]
        inner[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (_set(["InstanceType"], "nonsense.9xlarge"), "WrongType"),
        (_set(["Placement", "AvailabilityZone"], "us-east-1a"), "WrongZone"),
        (_set(["MaxCount"], 2), "WrongCount"),
        (_set(["ClientToken"], "x" * 65), "BadClientToken"),
        (_set(["ClientToken"], ""), "BadClientToken"),
        (_set(["MetadataOptions", "HttpTokens"], "optional"), "OpenMetadata"),
        (_set(["MetadataOptions", "HttpPutResponseHopLimit"], 2), "OpenMetadata"),
        (_set(["InstanceInitiatedShutdownBehavior"], "stop"), "OutlivesItself"),
        (_set(["UserData"], "#" * 20_000), "UserDataTooLarge"),
        (_set(["ImageId"], "ami-2"), "WrongImage"),
        (_set(["BlockDeviceMappings", 0, "Ebs", "VolumeSize"], 50), "DiskSize"),
        (_set(["BlockDeviceMappings", 0, "Ebs", "VolumeSize"], 20_000), "DiskSize"),
        (_set(["BlockDeviceMappings", 0, "Ebs", "DeleteOnTermination"], False), "DiskStays"),
        (_set(["BlockDeviceMappings", 0, "DeviceName"], "/dev/xvdz"), "NoRootDisk"),
        (_set(["TagSpecifications"], []), "NoTags"),
        (
            _set(["TagSpecifications", 0, "Tags"], [{"Key": "aws:mine", "Value": ""}]),
            "BadTag",
        ),
        (
            _set(["TagSpecifications", 0, "Tags"], [{"Key": "a", "Value": "x" * 257}]),
            "BadTag",
        ),
        (
            _set(
                ["TagSpecifications", 0, "Tags"],
                [{"Key": f"k{n}", "Value": ""} for n in range(51)],
            ),
            "TooManyTags",
        ),
        (_set(["InstanceMarketOptions"], None), "WrongMarket"),
        (
            _set(["InstanceMarketOptions", "SpotOptions", "SpotInstanceType"], "persistent"),
            "PersistentSpot",
        ),
        (
            _set(["InstanceMarketOptions", "SpotOptions", "MaxPrice"], "0.10"),
            "SpotMaxPriceTooLow",
        ),
    ],
)
def test_each_mistake_is_found(change, code):
    asked = copy.deepcopy(parameters())
    change(asked)
    assert problems(asked) == [code]


def test_an_on_demand_offer_is_never_rented_as_spot():
    assert problems(parameters(SPOT), an_offer()) == ["WrongMarket"]


def test_an_image_of_another_architecture_or_not_ready_is_refused():
    from dataclasses import replace

    assert problems(parameters(), image=replace(IMAGE, architecture="arm64")) == [
        "WrongArchitecture"
    ]
    assert problems(parameters(), image=replace(IMAGE, state="pending")) == ["ImageNotReady"]


def test_the_disk_is_never_smaller_than_the_image():
    disk = parameters(disk_gib=8)["BlockDeviceMappings"][0]["Ebs"]
    assert disk["VolumeSize"] == 100


@pytest.mark.parametrize(
    ("offer", "codes"),
    [
        (an_offer(), []),
        (an_offer(provider="gcp"), ["NotAws"]),
        (an_offer(region="us-west-2"), ["WrongRegion"]),
        (an_offer(flags=("historic",)), ["Historic"]),
        (an_offer(zone="use1-az2"), ["NoSuchZone"]),
        (an_offer(instance_type="p4d.24xlarge"), ["Unsupported"]),
    ],
)
def test_an_offer_that_this_account_cannot_rent_is_refused(offer, codes):
    assert [each.code for each in offer_problems(offer, PLACE, in_catalogue=True)] == codes


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("InsufficientInstanceCapacity", 500, FailureKind.CAPACITY),
        ("InsufficientHostCapacity", 500, FailureKind.CAPACITY),
        ("SpotMaxPriceTooLow", 400, FailureKind.CAPACITY),
        ("UnfulfillableCapacity", 500, FailureKind.CAPACITY),
        ("Unsupported", 400, FailureKind.CAPACITY),
        ("VcpuLimitExceeded", 400, FailureKind.QUOTA),
        ("MaxSpotInstanceCountExceeded", 400, FailureKind.QUOTA),
        ("InstanceLimitExceeded", 400, FailureKind.QUOTA),
        ("RequestLimitExceeded", 503, FailureKind.THROTTLED),
        ("UnauthorizedOperation", 403, FailureKind.CREDENTIALS),
        ("AuthFailure", 401, FailureKind.CREDENTIALS),
        ("InternalError", 500, FailureKind.UNREACHABLE),
        ("SomethingNew", 503, FailureKind.UNREACHABLE),
        ("InvalidParameterValue", 400, FailureKind.INVALID),
    ],
)
def test_amazons_codes_are_classified(code, status, kind):
    error = ClientError(
        {"Error": {"Code": code, "Message": "m"}, "ResponseMetadata": {"HTTPStatusCode": status}},
        "RunInstances",
    )
    assert explain(error).kind is kind
    assert explain(error).code == code


def test_no_answer_and_no_credentials_are_classified():
    timeout = ConnectTimeoutError(endpoint_url="https://ec2")
    assert explain(timeout).kind is FailureKind.UNREACHABLE
    assert explain(NoCredentialsError()).kind is FailureKind.CREDENTIALS


# -- the start-up script ------------------------------------------------------------------------


def test_the_script_is_small_the_same_for_all_and_a_shell_can_read_it():
    script = start_script(settings(), run_id=RUN_ID)
    assert len(script.encode()) < MOST_BYTES / 2
    assert script == start_script(settings(), run_id=RUN_ID)
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_the_script_arranges_the_end_before_anything_else_and_ends_with_it():
    lines = start_script(settings(lifetime_s=7200.0), run_id=RUN_ID).splitlines()
    timer = next(n for n, line in enumerate(lines) if line.startswith("shutdown -h"))
    assert timer < next(n for n, line in enumerate(lines) if "curl" in line)
    assert "POWER_OFF_MINUTES=130" in lines
    assert lines[-1] == "shutdown -h now"


def test_the_script_starts_the_agent_for_this_run():
    script = start_script(settings(), run_id=RUN_ID)
    assert "-m cloudgavel.agent" in script
    assert f"RUN_ID={RUN_ID}" in script
    assert "STORE_URL=s3://runs/quickstart" in script
    assert "X-aws-ec2-metadata-token" in script


def test_names_cannot_break_out_of_the_script():
    script = start_script(settings(), run_id="x'; touch /tmp/harm; '")
    assert "RUN_ID='x'\"'\"'; touch /tmp/harm; '\"'\"''" in script
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


# -- images -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("instance_type", "family"),
    [
        ("g5.xlarge", OPEN_DRIVER),
        ("p5.48xlarge", OPEN_DRIVER),
        ("p3.2xlarge", CLOSED_DRIVER),
        ("p3dn.24xlarge", CLOSED_DRIVER),
        ("g5g.xlarge", OPEN_DRIVER_ARM),
        ("trn1.32xlarge", NEURON),
    ],
)
def test_the_driver_fits_the_accelerator(instance_type, family):
    assert family_for(instance_type) is family


def test_graviton_and_grace_are_arm():
    assert architecture_of("g5g.xlarge") == "arm64"
    assert architecture_of("p6e-gb200.36xlarge") == "arm64"
    assert architecture_of("g5.xlarge") == architecture_of("g4dn.xlarge") == "x86_64"


def test_images_are_found_by_parameter_then_by_name_and_asked_for_once():
    with an_account() as account:
        images = Images(account.clients)
        modern = images.image_for("us-east-1", "g5.xlarge")
        assert modern.name.startswith("Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04)")
        assert images.image_for("us-east-1", "g6.xlarge") is modern
        assert account.layer.calls["GetParameter"] == 1
        older = images.image_for("us-east-1", "p3.2xlarge")
        assert "Proprietary" in older.name
        assert images.image_for("us-east-1", "g5.xlarge", modern.image_id).name == modern.name
        with pytest.raises(ImageNotFound, match="no parameter"):
            images.image_for("us-east-1", "g5.xlarge", "/aws/service/nothing")
        with pytest.raises(ImageNotFound, match="no image named"):
            images.image_for("us-east-1", "g5.xlarge", "My image *")


def test_without_the_parameter_store_the_name_finds_the_image():
    with an_account() as account:
        account.faults.denied.add("GetParameter")
        found = Images(account.clients).image_for("us-east-1", "g5.xlarge")
        assert "OSS Nvidia Driver" in found.name
