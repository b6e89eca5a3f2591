"""The moto server with the layer in front of it, as a WSGI middleware, on a local port."""

import contextlib
import io
import re
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from cloudgavel.pricing.offer import Offer
from cloudgavel.providers.aws.clients import AwsClients, default_maker
from cloudgavel.providers.aws.mocked.inside import deep_learning_images
from cloudgavel.providers.aws.mocked.layer import MotoLayer
from cloudgavel.providers.aws.mocked.wire import Answer, NoAnswer, read_request
from cloudgavel.providers.gcp.mocked.identity import claims_of
from tests.fakes.imds import KEY_ID

CONTROLLER = "mocked"
"""Key and secret of the controller."""
_LAYERED = ("/ec2/", "/ssm/", "/servicequotas/", "/pricing/")


@dataclass
class Trust:
    """Who may be which role by a Google identity, and who has used S3: moto asks nobody."""

    audience: str = ""
    account_by_role: dict[str, str] = field(default_factory=dict)
    """By role ARN: the number of the Google service account that may act as it."""
    keys: set[str] = field(default_factory=lambda: {CONTROLLER, KEY_ID})
    """That S3 knows: the controller's, the AWS machines', and those given out."""
    uses: Counter[str] = field(default_factory=Counter)
    """Of S3, by key."""

    def refusal(self, asked: dict[str, list[str]]) -> str | None:
        """Say why an identity may not be a role, as the role's trust policy would have it."""
        claims = claims_of(asked["WebIdentityToken"][0])
        number = self.account_by_role.get(asked["RoleArn"][0])
        found = (claims["azp"], claims["sub"], claims["aud"])
        return None if found == (number, number, self.audience) else "AccessDenied"


class LayerMiddleware:
    """WSGI: EC2 and its neighbours go through the layer, S3 and roles past ``trust``, to moto."""

    def __init__(
        self, application: Callable[..., Iterable[bytes]], layer: MotoLayer, trust: Trust
    ) -> None:
        self._application = application
        self._layer = layer
        self._trust = trust
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        signature = environ.get("HTTP_AUTHORIZATION", "")
        if "/s3/" in signature:
            key = signature.partition("Credential=")[2].partition("/")[0]
            self._trust.uses[key] += 1
            if key not in self._trust.keys:
                return self._denied(start_response, "InvalidAccessKeyId")
            return self._application(environ, start_response)
        if not any(service in signature for service in _LAYERED):
            if not signature and environ["REQUEST_METHOD"] == "POST":
                return self._unsigned(environ, start_response)
            return self._application(environ, start_response)
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))

        def forward() -> Answer:
            return self._forwarded(environ, body)

        headers = {"authorization": signature}
        if target := environ.get("HTTP_X_AMZ_TARGET"):
            headers["x-amz-target"] = target
        read = read_request(headers=headers, body=body, url_query=environ.get("QUERY_STRING", ""))
        try:
            answer = forward() if read is None else self._layer.handle(read, forward)
        except NoAnswer:
            # What a proxy says when the server behind it fell silent.
            answer = Answer(status=504, body=b"")
        lines = {k: v for k, v in answer.headers.items() if k.lower() != "content-length"}
        lines["Content-Length"] = str(len(answer.body))
        start_response(f"{answer.status} .", list(lines.items()))
        return [answer.body]

    def _unsigned(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        asked = parse_qs(body.decode(errors="replace"))
        is_role = asked.get("Action") == ["AssumeRoleWithWebIdentity"]
        if is_role and (code := self._trust.refusal(asked)) is not None:
            return self._denied(start_response, code)
        answer = self._forwarded(environ, body)
        if is_role:
            given = re.search(rb"<AccessKeyId>([^<]+)<", answer.body)
            assert given is not None, answer.body
            self._trust.keys.add(given[1].decode())
        start_response(f"{answer.status} .", list(answer.headers.items()))
        return [answer.body]

    @staticmethod
    def _denied(start_response: Any, code: str) -> Iterable[bytes]:
        body = f"<Error><Code>{code}</Code><Message>as arranged</Message></Error>".encode()
        start_response("403 .", [("Content-Type", "text/xml"), ("Content-Length", str(len(body)))])
        return [body]

    def _forwarded(self, environ: dict[str, Any], body: bytes) -> Answer:
        told: list[tuple[str, list[tuple[str, str]]]] = []

        def start(status: str, headers: list[tuple[str, str]], _info: Any = None) -> Any:
            told.append((status, headers))
            return lambda data: None

        inner = {
            **environ,
            "wsgi.input": io.BytesIO(body),
            "CONTENT_LENGTH": str(len(body)),
        }
        with self._lock:
            data = b"".join(self._application(inner, start))
        status, headers = told[-1]
        return Answer(status=int(status.split()[0]), body=data, headers=dict(headers))


@dataclass
class MotoCloud:
    """A running server, its layer, and clients bound to it."""

    url: str
    layer: MotoLayer
    trust: Trust
    clients: AwsClients


@contextlib.contextmanager
def moto_cloud(offers: Sequence[Offer], **options: Any) -> Iterator[MotoCloud]:
    """Serve a fresh account on a free local port; ``options`` are the layer's."""
    import boto3
    from moto.moto_server.werkzeug_app import (
        DomainDispatcherApplication,
        MotoRequestHandler,
        create_backend_app,
    )
    from werkzeug.serving import make_server

    layer = MotoLayer(now_s=time.time, offers=offers, **options)
    trust = Trust()
    application = LayerMiddleware(DomainDispatcherApplication(create_backend_app), layer, trust)

    class Quiet(MotoRequestHandler):
        def log(self, *_: Any) -> None:
            pass

    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    try:
        with deep_learning_images():
            with urllib.request.urlopen(f"{url}/moto-api/reset", data=b""):
                pass
            session = boto3.session.Session(
                aws_access_key_id=CONTROLLER, aws_secret_access_key=CONTROLLER
            )
            maker = default_maker(endpoint_url=url, session=session)
            yield MotoCloud(url=url, layer=layer, trust=trust, clients=AwsClients(maker))
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
