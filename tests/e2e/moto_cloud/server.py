"""The moto server with the layer in front of it, as a WSGI middleware, on a local port."""

import contextlib
import io
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cloudgavel.pricing.offer import Offer
from cloudgavel.providers.aws.clients import AwsClients, default_maker
from cloudgavel.providers.aws.mocked.inside import deep_learning_images
from cloudgavel.providers.aws.mocked.layer import MotoLayer
from cloudgavel.providers.aws.mocked.wire import Answer, NoAnswer, read_request

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "mocked",
    "AWS_SECRET_ACCESS_KEY": "mocked",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""What a process needs to speak to the server, with ``AWS_ENDPOINT_URL``; opens nothing real."""

_LAYERED = ("/ec2/", "/ssm/", "/servicequotas/", "/pricing/")


class LayerMiddleware:
    """WSGI: EC2 and its neighbours go through the layer, all else straight to moto."""

    def __init__(self, application: Callable[..., Iterable[bytes]], layer: MotoLayer) -> None:
        self._application = application
        self._layer = layer
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        signature = environ.get("HTTP_AUTHORIZATION", "")
        if not any(service in signature for service in _LAYERED):
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
    application = LayerMiddleware(DomainDispatcherApplication(create_backend_app), layer)

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
                aws_access_key_id="mocked", aws_secret_access_key="mocked"
            )
            maker = default_maker(endpoint_url=url, session=session)
            yield MotoCloud(url=url, layer=layer, clients=AwsClients(maker))
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
