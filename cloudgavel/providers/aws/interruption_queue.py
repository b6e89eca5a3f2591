"""Spot warnings that EventBridge puts into SQS queues: one call tells of every machine's end."""

import json
import logging
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from cloudgavel.providers.aws.clients import AwsClients
from cloudgavel.providers.aws.failures import call_failed

log = logging.getLogger("cloudgavel.aws")

WARNING = "EC2 Spot Instance Interruption Warning"
NOTICE_S = 120.0
"""From the warning to the interruption."""
BATCH = 10
"""The most that SQS hands out at once."""
MOST_BATCHES = 20


class InterruptionQueues:
    """Reads queues by their URLs (``https://sqs.REGION.amazonaws.com/ACCOUNT/NAME``).

    Messages about machines of ours are deleted, and so is what is no warning at all. Warnings about
    other machines are left: they may be another run's, and the queue forgets them by itself. That a
    queue does not answer is logged once until it does; agents hear the same word on their machines.
    """

    def __init__(self, clients: AwsClients, urls: Sequence[str]) -> None:
        self._clients = clients
        self._urls = tuple(urls)
        self._silent: set[str] = set()

    def hear(self, ours: Collection[str]) -> list[tuple[str, float]]:
        """Return ``(instance_id, ends_at_s)`` of each new warning about ``ours``."""
        found: list[tuple[str, float]] = []
        for url in self._urls:
            try:
                found += self._read(url, ours)
            except Exception as error:
                if url not in self._silent:
                    log.warning("%s", call_failed(error, "read the interruption queue").message)
                self._silent.add(url)
            else:
                self._silent.discard(url)
        return found

    def _read(self, url: str, ours: Collection[str]) -> list[tuple[str, float]]:
        sqs = self._clients.client("sqs", region_of_queue(url))
        found: list[tuple[str, float]] = []
        for _ in range(MOST_BATCHES):
            answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=BATCH, WaitTimeSeconds=0)
            messages = answer.get("Messages", ())
            done = []
            for number, message in enumerate(messages):
                warning = _warning(message.get("Body", ""))
                if warning is not None and warning[0] in ours:
                    found.append(warning)
                if warning is None or warning[0] in ours:
                    done.append({"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]})
            if done:
                sqs.delete_message_batch(QueueUrl=url, Entries=done)
            if len(messages) < BATCH:
                break
        return found


def region_of_queue(url: str) -> str:
    """``https://sqs.us-east-1.amazonaws.com/1/q`` -> ``us-east-1``; ``ValueError`` otherwise."""
    host = url.partition("://")[2].partition("/")[0]
    labels = host.split(".")
    if len(labels) < 4 or labels[0] != "sqs" or labels[2] != "amazonaws":
        raise ValueError(f"not the address of a queue: {url!r}")
    return labels[1]


def _warning(body: str) -> tuple[str, float] | None:
    """Return the instance and its end; ``None`` for anything else than a spot warning."""
    try:
        event: dict[str, Any] = json.loads(body)
        if event["detail-type"] != WARNING:
            return None
        said_at = datetime.fromisoformat(event["time"])
        return str(event["detail"]["instance-id"]), said_at.timestamp() + NOTICE_S
    except (ValueError, KeyError, TypeError):
        return None
