"""EC2's and its neighbours' requests and answers as they go over the wire. Pure."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl
from xml.etree import ElementTree
from xml.sax.saxutils import escape

EC2_NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
_SCOPE = re.compile(r"Credential=[^/]+/\d{8}/([a-z0-9-]+)/([a-z0-9-]+)/aws4_request")


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One signed call: to which service and region, which operation, with which parameters."""

    service: str
    region: str
    operation: str
    parameters: Mapping[str, Any]
    """EC2: the flat form (``Placement.AvailabilityZone``); JSON services: the document."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """One answer over the wire."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class NoAnswer(Exception):
    """The call is to get no answer: the caller's connection ends."""


def read_request(
    *, headers: Mapping[str, str], body: bytes | str | None, url_query: str = ""
) -> Request | None:
    """Read a call; ``None`` for one that is not signed, or of no operation known here (S3)."""
    lower = {key.lower(): _text(value) for key, value in headers.items()}
    scope = _SCOPE.search(lower.get("authorization", ""))
    if scope is None:
        return None
    region, service = scope[1], scope[2]
    raw = _text(body or "")
    target = lower.get("x-amz-target")
    if target is not None:
        parameters: dict[str, Any] = json.loads(raw or "{}")
        return Request(
            service=service,
            region=region,
            operation=target.rpartition(".")[2],
            parameters=parameters,
        )
    if service != "ec2":
        return None
    form = dict(parse_qsl(raw or url_query, keep_blank_values=True))
    return Request(
        service=service,
        region=region,
        operation=form.pop("Action", ""),
        parameters={key: value for key, value in form.items() if key != "Version"},
    )


def numbered(parameters: Mapping[str, str], name: str) -> list[str]:
    """Return the values of ``name.1``, ``name.2``, ... in order."""
    found = []
    for key, value in parameters.items():
        start, _, number = key.rpartition(".")
        if start == name and number.isdigit():
            found.append((int(number), value))
    return [value for _, value in sorted(found)]


def ec2_error(code: str, message: str, *, status: int = 400) -> Answer:
    """Return an error as EC2 writes it."""
    body = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<Response><Errors><Error><Code>{escape(code)}</Code>"
        f"<Message>{escape(message)}</Message></Error></Errors>"
        "<RequestID>00000000-0000-0000-0000-000000000000</RequestID></Response>"
    )
    return Answer(status=status, body=body.encode(), headers={"Content-Type": "text/xml"})


def ec2_answer(operation: str, inner: str) -> Answer:
    """Return ``inner`` as the answer of an EC2 operation."""
    body = (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<{operation}Response xmlns="{EC2_NAMESPACE}">'
        f"<requestId>00000000-0000-0000-0000-000000000000</requestId>{inner}"
        f"</{operation}Response>"
    )
    return Answer(status=200, body=body.encode(), headers={"Content-Type": "text/xml"})


def json_answer(document: Mapping[str, Any], *, status: int = 200) -> Answer:
    """Return a document as a JSON service writes it."""
    return Answer(
        status=status,
        body=json.dumps(document).encode(),
        headers={"Content-Type": "application/x-amz-json-1.1"},
    )


def json_error(code: str, message: str, *, status: int = 400) -> Answer:
    """Return an error as a JSON service writes it."""
    return json_answer({"__type": code, "message": message}, status=status)


def error_for(request: Request, code: str, message: str, *, status: int = 400) -> Answer:
    """Return an error in the dialect of the service that was asked."""
    if request.service == "ec2":
        return ec2_error(code, message, status=status)
    return json_error(code, message, status=status)


def instance_ids_in(answer: Answer) -> list[str]:
    """Return the instance ids of an answer of EC2, each once, in order."""
    found = re.findall(rb"<instanceId>(i-[0-9a-f]+)</instanceId>", answer.body)
    return [each.decode() for each in dict.fromkeys(found)]


def without_instances(answer: Answer, hidden: set[str]) -> Answer:
    """Return an answer of ``DescribeInstances`` without some of its instances."""
    if not hidden.intersection(instance_ids_in(answer)):
        return answer
    root = ElementTree.fromstring(answer.body)
    space = root.tag.partition("}")[0].lstrip("{") if root.tag.startswith("{") else ""
    mark = f"{{{space}}}" if space else ""
    if space:
        ElementTree.register_namespace("", space)
    reservations = root.find(f"{mark}reservationSet")
    for reservation in [] if reservations is None else list(reservations):
        instances = reservation.find(f"{mark}instancesSet")
        if instances is None or reservations is None:
            continue
        for item in list(instances):
            if item.findtext(f"{mark}instanceId") in hidden:
                instances.remove(item)
        if len(instances) == 0:
            reservations.remove(reservation)
    body = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    headers = {k: v for k, v in answer.headers.items() if k.lower() != "content-length"}
    return Answer(status=answer.status, body=body, headers=headers)


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
