"""The mocked cloud inside this process: clients whose calls end in moto and never in a socket."""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from cloudgavel.errors import UsageError
from cloudgavel.providers.aws.clients import AwsClients, CallRecord, ClientMaker, default_maker
from cloudgavel.providers.aws.mocked.layer import MotoLayer
from cloudgavel.providers.aws.mocked.machines import ACCOUNT
from cloudgavel.providers.aws.mocked.tables import IMAGES
from cloudgavel.providers.aws.mocked.wire import Answer, NoAnswer, read_request


class WouldLeave(RuntimeError):
    """A call that the mocked cloud does not know was about to leave the process."""


@contextlib.contextmanager
def mocked_aws(
    layer: MotoLayer, *, on_call: Callable[[CallRecord], None] | None = None
) -> Iterator[AwsClients]:
    """Open a mocked account and yield clients bound to it; a fresh one each time.

    While it is open, boto3 clients made elsewhere in the process are mocked too. ``UsageError``
    without moto.
    """
    try:
        from moto import mock_aws
    except ImportError as error:
        raise UsageError(
            "the dry run of AWS needs moto, which is not installed",
            hints=["install it: pip install 'moto[ec2,s3,sts,iam,ssm]'"],
        ) from error
    with deep_learning_images(), mock_aws():
        yield AwsClients(mocked_maker(layer), on_call=on_call)


@contextlib.contextmanager
def deep_learning_images() -> Iterator[None]:
    """Let moto know our Deep Learning images, and only those, in accounts opened meanwhile.

    Its own thirteen hundred are of 2017 and take a second per region to set up.
    """
    from moto.ec2.models import amis

    def load(backend: Any) -> None:
        for image_id, family in IMAGES.items():
            backend.amis[image_id] = amis.Ami(
                backend,
                image_id,
                name=family.name_pattern.replace("*", "20261101"),
                description=family.title,
                owner_id=ACCOUNT,
                owner_alias="amazon",
                public=True,
                virtualization_type="hvm",
                architecture=family.architecture,
                hypervisor="xen",
                root_device_type="ebs",
            )

    with mock.patch.object(amis.AmiBackend, "_load_amis", load):
        yield


@functools.cache
def _session() -> Any:
    """Return one session for the process: reading the SDK's descriptions takes most of a start."""
    import boto3

    return boto3.session.Session(
        aws_access_key_id="mocked",
        aws_secret_access_key="mocked",
        aws_session_token="mocked",
    )


def mocked_maker(layer: MotoLayer) -> ClientMaker:
    """Return a maker of clients whose every call goes through ``layer``, then to moto."""
    from_session = default_maker(session=_session())
    made: dict[tuple[str, str], Any] = {}
    forward_lock = threading.Lock()

    def make(service: str, region: str, *, attempts: int) -> Any:
        known = made.get((service, region))
        if known is not None:
            return known
        # Errors are arranged for us to see: the SDK's own repeating would eat them, and wait.
        client = made[service, region] = from_session(service, region, attempts=1)
        from moto.core.models import botocore_stubber

        # Every handler of an event is called, not only up to the first that answers.
        client.meta.events.unregister("before-send", botocore_stubber)
        client.meta.events.register_first("before-send", hook)
        return client

    def hook(request: Any, **_: Any) -> Any:
        from botocore.awsrequest import AWSResponse
        from botocore.compat import HTTPHeaders
        from botocore.exceptions import ReadTimeoutError
        from moto.core.botocore_stubber import MockRawResponse
        from moto.core.models import botocore_stubber

        def forward() -> Answer:
            # moto's models are plain dictionaries, changed without a thought of threads.
            with forward_lock:
                answered = botocore_stubber.process_request(request)
            if answered is None:
                raise WouldLeave(f"no mocked service answers {request.method} {request.url}")
            status, headers, body = answered
            raw = body.encode() if isinstance(body, str) else bytes(body or b"")
            return Answer(status=int(status), body=raw, headers=dict(headers))

        read = read_request(headers=dict(request.headers.items()), body=request.body)
        try:
            answer = forward() if read is None else layer.handle(read, forward)
        except NoAnswer:
            raise ReadTimeoutError(endpoint_url=request.url, error="no answer") from None
        headers = HTTPHeaders()
        for name, value in answer.headers.items():
            headers[name] = value
        return AWSResponse(request.url, answer.status, headers, MockRawResponse(answer.body))

    return make
