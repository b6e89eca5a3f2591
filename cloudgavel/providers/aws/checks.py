"""What must be true before a run on AWS: looked at one by one, with what to do about each.

Nothing is created: permissions are asked about with EC2's own dry run.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import Any

from cloudgavel.documents.check import CheckLine, CheckStatus
from cloudgavel.pricing.offer import CapacityType, Offer
from cloudgavel.providers.aws.clients import PRICE_LIST_REGION, AwsClients
from cloudgavel.providers.aws.failures import NOT_FOUND, code_of, explain
from cloudgavel.providers.aws.images import ImageNotFound, Images
from cloudgavel.providers.aws.interruption_queue import region_of_queue
from cloudgavel.providers.aws.quotas import limit_for, read_limits
from cloudgavel.providers.aws.sweep import enabled_regions
from cloudgavel.providers.failures import CallFailed, FailureKind

SKEW_WARNING_S = 30.0
SKEW_FAILURE_S = 240.0
"""AWS refuses signatures that are five minutes off."""
_DRY_RUN_WORKED = "DryRunOperation"
_DENIED = frozenset({"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"})
_POLICY_HINT = "give your user the policy of docs/how-to/aws.md, section 1"
_QUEUE_HINT = "make the queue: docs/how-to/aws.md, spot warnings for the controller"
_NOBODY = "i-00000000000000000"


def check_aws(
    clients: AwsClients,
    *,
    regions: Sequence[str],
    offers: Iterable[Offer],
    now_s: Callable[[], float],
    instance_profile: str | None = None,
    interruption_queues: Sequence[str] = (),
) -> list[CheckLine]:
    """Look at credentials and clock, then at each region: permissions, image, quotas.

    ``offers`` are those that a run might rent. Without credentials there is one failed line.
    """
    lines = _who_and_when(clients, now_s)
    if any(line.status is CheckStatus.FAILED for line in lines):
        return lines
    sold = [
        offer
        for offer in offers
        if offer.provider == "aws" and offer.region in regions and not offer.is_historic
    ]
    enabled = _enabled(clients)
    for region in regions:
        if enabled is not None and region not in enabled:
            lines.append(
                _line(
                    region,
                    "region",
                    CheckStatus.FAILED,
                    "not enabled in this account",
                    f"enable {region} in the account's settings, or leave it out",
                )
            )
            continue
        here = [offer for offer in sold if offer.region == region]
        image_line, image_id = _image(clients, region, here)
        lines += image_line
        lines += _permissions(clients, region, here, image_id, instance_profile)
        lines += _quotas(clients, region, here)
    lines += [_queue(clients, url) for url in interruption_queues]
    return lines


def _queue(clients: AwsClients, url: str) -> CheckLine:
    """Look into a queue of spot warnings without hiding a message from its readers."""
    region = region_of_queue(url)
    try:
        clients.client("sqs", region).receive_message(
            QueueUrl=url, MaxNumberOfMessages=1, WaitTimeSeconds=0, VisibilityTimeout=0
        )
    except Exception as error:
        line = _failed_call(region, "queue", error)
        return line if line.hint is not None else replace(line, hint=_QUEUE_HINT)
    return _line(region, "queue", CheckStatus.PASSED, f"{url.rpartition('/')[2]} can be read")


def _who_and_when(clients: AwsClients, now_s: Callable[[], float]) -> list[CheckLine]:
    before_s = now_s()
    try:
        answer = clients.client("sts", PRICE_LIST_REGION).get_caller_identity()
    except Exception as error:
        explained = explain(error)
        if explained.kind is FailureKind.CREDENTIALS:
            hint = "run `aws configure`, or set AWS_PROFILE, or AWS_ACCESS_KEY_ID and its secret"
            return [_line(None, "credentials", CheckStatus.FAILED, explained.message, hint)]
        return [
            _line(
                None,
                "credentials",
                CheckStatus.FAILED,
                explained.message,
                "check this machine's way to the internet",
            )
        ]
    lines = [_line(None, "credentials", CheckStatus.PASSED, str(answer["Arn"]))]
    told = answer["ResponseMetadata"].get("HTTPHeaders", {}).get("date")
    skew_s = None if told is None else _skew_s(told, (before_s + now_s()) / 2)
    if skew_s is None:
        lines.append(_line(None, "clock", CheckStatus.WARNING, "AWS did not say what time it is"))
        return lines
    status = CheckStatus.PASSED
    if abs(skew_s) > SKEW_WARNING_S:
        status = CheckStatus.WARNING if abs(skew_s) <= SKEW_FAILURE_S else CheckStatus.FAILED
    way = "ahead of" if skew_s > 0 else "behind"
    lines.append(
        _line(
            None,
            "clock",
            status,
            f"{abs(skew_s):.0f} s {way} AWS",
            None if status is CheckStatus.PASSED else "set this machine's clock (NTP)",
        )
    )
    return lines


def _skew_s(told: str, ours_s: float) -> float | None:
    try:
        return ours_s - parsedate_to_datetime(told).timestamp()
    except (TypeError, ValueError):
        return None


def _enabled(clients: AwsClients) -> tuple[str, ...] | None:
    try:
        return enabled_regions(clients)
    except CallFailed:
        return None


def _image(
    clients: AwsClients, region: str, offers: Sequence[Offer]
) -> tuple[list[CheckLine], str | None]:
    lines: list[CheckLine] = []
    images, found = Images(clients), {}
    for instance_type in sorted({offer.instance_type for offer in offers}):
        try:
            image = images.image_for(region, instance_type)
        except ImageNotFound as error:
            lines.append(
                _line(region, "image", CheckStatus.WARNING, f"{instance_type}: {error.message}")
            )
        except Exception as error:
            lines.append(_failed_call(region, "image", error))
            break
        else:
            found[image.image_id] = image
    lines += [
        _line(region, "image", CheckStatus.PASSED, f"{image_id} {image.name}")
        for image_id, image in sorted(found.items())
    ]
    return lines, min(found, default=None)


def _permissions(
    clients: AwsClients,
    region: str,
    offers: Sequence[Offer],
    image_id: str | None,
    instance_profile: str | None,
) -> list[CheckLine]:
    ec2 = clients.client("ec2", region, once=True)
    kinds = sorted({offer.instance_type for offer in offers})
    run: dict[str, Any] = {
        "ImageId": image_id or "ami-00000000000000000",
        "InstanceType": kinds[0] if kinds else "g5.xlarge",
        "MinCount": 1,
        "MaxCount": 1,
        "DryRun": True,
    }
    if instance_profile is not None:
        is_arn = instance_profile.startswith("arn:")
        run["IamInstanceProfile"] = {"Arn" if is_arn else "Name": instance_profile}
    asked: list[tuple[str, Callable[[], Any]]] = [
        ("ec2:RunInstances", lambda: ec2.run_instances(**run)),
        (
            "ec2:TerminateInstances",
            lambda: ec2.terminate_instances(InstanceIds=[_NOBODY], DryRun=True),
        ),
        ("ec2:DescribeInstances", lambda: ec2.describe_instances(MaxResults=5)),
        ("ec2:DescribeAvailabilityZones", lambda: ec2.describe_availability_zones()),
        (
            "ec2:DescribeInstanceTypeOfferings",
            lambda: ec2.describe_instance_type_offerings(MaxResults=5),
        ),
        (
            "ec2:DescribeSpotPriceHistory",
            lambda: ec2.describe_spot_price_history(
                InstanceTypes=[run["InstanceType"]], MaxResults=5
            ),
        ),
    ]
    lines = []
    for action, call in asked:
        try:
            call()
        except Exception as error:
            code = code_of(error)
            if code in _DENIED:
                lines.append(
                    _line(
                        region, "permission", CheckStatus.FAILED, f"{action} denied", _POLICY_HINT
                    )
                )
                continue
            if code != _DRY_RUN_WORKED and code not in NOT_FOUND:
                explained = explain(error)
                lines.append(
                    _line(
                        region,
                        "permission",
                        CheckStatus.FAILED,
                        f"{action}: {explained.message}",
                        _hint_for(explained.message, instance_profile),
                    )
                )
                continue
        lines.append(_line(region, "permission", CheckStatus.PASSED, action))
    return lines


def _quotas(clients: AwsClients, region: str, offers: Sequence[Offer]) -> list[CheckLine]:
    try:
        limits = read_limits(clients, region)
    except Exception as error:
        explained = explain(error)
        return [
            _line(
                region,
                "quota",
                CheckStatus.WARNING,
                f"cannot be read: {explained.message}",
                "allow servicequotas:ListServiceQuotas, so that regions without quota are skipped",
            )
        ]
    smallest: dict[str, float] = {}
    by_code = {}
    unknown: set[tuple[str, CapacityType]] = set()
    for offer in offers:
        limit = limit_for(
            limits,
            region=region,
            instance_type=offer.instance_type,
            capacity_type=offer.capacity_type,
        )
        if limit is None:
            unknown.add((offer.instance_type, offer.capacity_type))
            continue
        by_code[limit.title] = limit
        needed = offer.vcpus or 1.0
        smallest[limit.title] = min(needed, smallest.get(limit.title, needed))
    lines = []
    for title, limit in sorted(by_code.items()):
        enough = limit.vcpus >= smallest[title]
        lines.append(
            _line(
                region,
                "quota",
                CheckStatus.PASSED if enough else CheckStatus.WARNING,
                f"{limit.vcpus:g} vCPUs of {title}",
                None
                if enough
                else f"ask AWS for at least {smallest[title]:g} vCPUs: Service Quotas, "
                f"{region}, EC2, {limit.code}",
            )
        )
    lines += [
        _line(region, "quota", CheckStatus.WARNING, f"no limit names {kind} {how.value}")
        for kind, how in sorted(unknown)
    ]
    return lines


def _failed_call(region: str, subject: str, error: BaseException) -> CheckLine:
    explained = explain(error)
    denied = explained.kind is FailureKind.CREDENTIALS
    return _line(
        region,
        subject,
        CheckStatus.FAILED,
        f"{explained.code}: {explained.message}",
        _POLICY_HINT if denied else None,
    )


def _hint_for(message: str, instance_profile: str | None) -> str | None:
    if instance_profile is not None and "profile" in message.lower():
        return f"make the instance profile {instance_profile}: docs/how-to/aws.md, section 2"
    return None


def _line(
    region: str | None, subject: str, status: CheckStatus, detail: str, hint: str | None = None
) -> CheckLine:
    return CheckLine(
        provider="aws", region=region, subject=subject, status=status, detail=detail, hint=hint
    )
