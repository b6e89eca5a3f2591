"""Spot warnings by EventBridge and SQS, as docs/how-to/aws.md sets them up, on a mocked account."""

import json
import logging
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cloudgavel.documents.check import CheckLine, CheckStatus
from cloudgavel.providers.aws.checks import check_aws
from cloudgavel.providers.aws.interruption_queue import InterruptionQueues, region_of_queue
from tests.unit.aws.account import (
    RUN_ID,
    START_AT_S,
    Account,
    a_request,
    a_spot_offer,
    an_account,
    settings,
)

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "aws.md"
URL = "https://sqs.us-east-1.amazonaws.com/123456789012/warnings"


def a_queue(account: Account) -> Any:
    sqs = account.clients.client("sqs", "us-east-1")
    assert sqs.create_queue(QueueName="warnings")["QueueUrl"] == URL
    sqs.set_queue_attributes(QueueUrl=URL, Attributes={"VisibilityTimeout": "0"})
    return sqs


def a_warning(instance_id: str, at_s: float = START_AT_S + 600) -> dict[str, Any]:
    return {
        "version": "0",
        "id": "12345678-1234-1234-1234-123456789012",
        "detail-type": "EC2 Spot Instance Interruption Warning",
        "source": "aws.ec2",
        "account": "123456789012",
        "time": datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": "us-east-1",
        "resources": [f"arn:aws:ec2:us-east-1:123456789012:instance/{instance_id}"],
        "detail": {"instance-id": instance_id, "instance-action": "terminate"},
    }


def left(sqs: Any) -> int:
    found = sqs.get_queue_attributes(QueueUrl=URL, AttributeNames=["All"])["Attributes"]
    return int(found["ApproximateNumberOfMessages"])


def test_a_warning_is_a_notice_in_the_next_list_and_is_taken_off_the_queue() -> None:
    with an_account(given=settings(interruption_queues=(URL,))) as account:
        sqs = a_queue(account)
        launched = account.provider.launch(a_request(a_spot_offer()))
        sqs.send_message(QueueUrl=URL, MessageBody=json.dumps(a_warning(launched.instance_id)))
        (listed,) = account.provider.list_instances(RUN_ID)
        assert listed.notice_ends_at_s == START_AT_S + 720
        assert left(sqs) == 0


def test_warnings_about_the_machines_of_others_stay_and_nonsense_goes() -> None:
    with an_account() as account:
        sqs = a_queue(account)
        queues = InterruptionQueues(account.clients, [URL])
        for number in range(12):
            sqs.send_message(QueueUrl=URL, MessageBody=json.dumps(a_warning(f"i-{number}")))
        for body in ("no json", "[]", "{}", json.dumps({"detail-type": "something else"})):
            sqs.send_message(QueueUrl=URL, MessageBody=body)
        sqs.set_queue_attributes(QueueUrl=URL, Attributes={"VisibilityTimeout": "60"})
        assert queues.hear({"i-3", "i-11"}) == [
            ("i-3", START_AT_S + 720),
            ("i-11", START_AT_S + 720),
        ]
        found = sqs.get_queue_attributes(QueueUrl=URL, AttributeNames=["All"])["Attributes"]
        assert int(found["ApproximateNumberOfMessagesNotVisible"]) == 10


def test_a_queue_that_does_not_answer_is_told_once_and_hides_no_machine(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with an_account(given=settings(interruption_queues=(URL,))) as account:
        launched = account.provider.launch(a_request(a_spot_offer()))
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                (listed,) = account.provider.list_instances(RUN_ID)
                assert listed.instance_id == launched.instance_id
        told = [each for each in caplog.messages if "read the interruption queue" in each]
        assert len(told) == 1


def test_the_rule_of_the_page_catches_the_event() -> None:
    pattern = re.search(r"--event-pattern \\\n\s+'(.*?)'", PAGE.read_text())
    assert pattern is not None
    with an_account() as account:
        sqs = a_queue(account)
        events = account.clients.client("events", "us-east-1")
        events.put_rule(Name="cloudgavel-interruptions", EventPattern=pattern[1])
        arn = "arn:aws:sqs:us-east-1:123456789012:warnings"
        events.put_targets(Rule="cloudgavel-interruptions", Targets=[{"Id": "queue", "Arn": arn}])
        warning = a_warning("i-1")
        for kind in (warning["detail-type"], "EC2 Instance State-change Notification"):
            events.put_events(
                Entries=[
                    {
                        "Source": warning["source"],
                        "DetailType": kind,
                        "Detail": json.dumps(warning["detail"]),
                        "Time": datetime.fromtimestamp(START_AT_S, UTC),
                    }
                ]
            )
        assert left(sqs) == 1
        ((instance_id, _),) = InterruptionQueues(account.clients, [URL]).hear({"i-1"})
        assert instance_id == "i-1"


@pytest.mark.parametrize("url", ["", "nonsense", "https://example.org/1/q", "sqs://a.b.c.d/q"])
def test_only_addresses_of_queues_have_a_region(url: str) -> None:
    with pytest.raises(ValueError, match="queue"):
        region_of_queue(url)
    assert region_of_queue(URL) == "us-east-1"


def test_the_check_looks_into_the_queue_and_hides_no_message() -> None:
    with an_account() as account:
        sqs = a_queue(account)
        sqs.set_queue_attributes(QueueUrl=URL, Attributes={"VisibilityTimeout": "60"})
        sqs.send_message(QueueUrl=URL, MessageBody=json.dumps(a_warning("i-1")))

        def queue_lines(url: str) -> list[CheckLine]:
            lines = check_aws(
                account.clients,
                regions=["us-east-1"],
                offers=[],
                now_s=account.clock.now_s,
                interruption_queues=[url],
            )
            return [line for line in lines if line.subject == "queue"]

        account.clock.advance_to(time.time())
        (line,) = queue_lines(URL)
        assert (line.status, line.detail) == (CheckStatus.PASSED, "warnings can be read")
        assert left(sqs) == 1
        (line,) = queue_lines(URL + "-nowhere")
        assert line.status is CheckStatus.FAILED
        assert line.hint is not None
