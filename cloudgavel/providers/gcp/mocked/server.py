"""The fake cloud on a port of 127.0.0.1, and a metadata server per machine.

Answers are written at once (buffered, without Nagle's delay), or each would cost 40 ms.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from cloudgavel.providers.gcp.mocked.answers import Answer, Refusal, Request, said
from cloudgavel.providers.gcp.mocked.cloud import FakeGcp, Slice, Vm
from cloudgavel.providers.gcp.mocked.compute import FakeCompute
from cloudgavel.providers.gcp.mocked.identity import MACHINE_TOKEN, FakeIdentity, identity_token
from cloudgavel.providers.gcp.mocked.storage import FakeStorage
from cloudgavel.providers.gcp.mocked.tpu import FakeTpu

HOST = "127.0.0.1"
LONGEST_WAIT_S = 60.0
LOOK_EVERY_S = 0.02


@dataclass
class Services:
    """All services of one fake cloud behind one ``handle``."""

    cloud: FakeGcp
    compute: FakeCompute = field(init=False)
    tpu: FakeTpu = field(init=False)
    storage: FakeStorage = field(init=False)
    identity: FakeIdentity = field(init=False)

    def __post_init__(self) -> None:
        self.identity = FakeIdentity(self.cloud)
        self.compute = FakeCompute(self.cloud)
        self.tpu = FakeTpu(self.cloud)
        self.storage = FakeStorage(self.cloud)

    def handle(self, request: Request) -> Answer:
        """Do what a request asks; what the cloud refuses is an answer too."""
        with self.cloud.lock:
            try:
                return self._handled(request)
            except Refusal as refusal:
                return refusal.answer()

    def _handled(self, request: Request) -> Answer:
        for service in (
            self.compute.route,
            self.tpu.route,
            self._stored,
            self.identity.route,
            self._billing,
            self._permissions,
        ):
            found = service(request)
            if found is not None:
                operation, do = found
                break
        else:
            raise Refusal(404, "notFound", f"the fake cloud has no {request.path}")
        self.cloud.calls[operation] += 1
        refusals = self.cloud.faults.refusals.get(operation)
        if refusals:
            status, reason, message = refusals.popleft()
            raise Refusal(status, reason, message)
        answer = do()
        if self.cloud.faults.unanswered.get(operation, 0) > 0:
            self.cloud.faults.unanswered[operation] -= 1
            return Answer(lost=True)
        return answer

    def _stored(self, request: Request) -> tuple[str, Callable[[], Answer]] | None:
        found = self.storage.route(request)
        if found is not None:
            self.identity.require_known(request)
        return found

    def _billing(self, request: Request) -> tuple[str, Callable[[], Answer]] | None:
        path = request.path.removeprefix("/v1/")
        if path == request.path or not path.endswith("/skus"):
            return None
        rows = self.cloud.skus.get(path.removesuffix("/skus"), [])
        return "skus.list", lambda: said({"skus": rows})

    def _permissions(self, request: Request) -> tuple[str, Callable[[], Answer]] | None:
        if request.path != f"/v1/projects/{self.cloud.project}:testIamPermissions":
            return None
        asked = request.json().get("permissions", [])
        granted = [each for each in asked if each not in self.cloud.denied_permissions]
        return "projects.testIamPermissions", lambda: said({"permissions": granted})


@dataclass
class Metadata:
    """The metadata server that one machine sees."""

    cloud: FakeGcp
    name: str

    def handle(self, request: Request) -> Answer:
        """Answer like Google's: text, an ETag, and long polls."""
        if request.headers.get("metadata-flavor") != "Google":
            return Answer(status=403, body=b"Missing Metadata-Flavor:Google header.")
        path = request.path.removeprefix("/computeMetadata/v1/")
        self.cloud.calls[f"metadata.{path}"] += 1
        if path == "instance/service-accounts/default/identity":
            return self._identity(request)
        value = self._value(path)
        if value is None:
            return Answer(status=404)
        if request.query.get("wait_for_change") == "true":
            value = self._changed(path, value, request)
        kind = "application/json" if value.startswith("{") else "application/text"
        return Answer(body=value.encode(), headers={"Content-Type": kind, "ETag": _tag(value)})

    def _identity(self, request: Request) -> Answer:
        machine, audience = self.cloud.machine(self.name), request.query.get("audience")
        if not audience:
            return Answer(status=400, body=b"non-empty audience parameter required")
        token = None
        if machine is not None:
            token = identity_token(machine, audience, self.cloud.now_s())
        return Answer(status=404) if token is None else Answer(body=token.encode())

    def _changed(self, path: str, value: str, request: Request) -> str:
        """Hold the answer until the value changes, or for the time that was asked."""
        last = request.query.get("last_etag") or _tag(value)
        left_s = min(float(request.query.get("timeout_sec", LONGEST_WAIT_S)), LONGEST_WAIT_S)
        waiting = threading.Event()
        while _tag(value) == last and left_s > 0:
            waiting.wait(LOOK_EVERY_S)
            left_s -= LOOK_EVERY_S
            value = self._value(path) or value
        return value

    def _value(self, path: str) -> str | None:
        machine = self.cloud.machine(self.name)
        if machine is None:
            return None
        with self.cloud.lock:
            return self._of(machine, path)

    def _of(self, machine: Vm | Slice, path: str) -> str | None:
        match path:
            case "instance/preempted":
                return "TRUE" if self.cloud.is_taken(machine) else "FALSE"
            case "instance/maintenance-event":
                return machine.maintenance
            case "instance/name":
                return machine.name
            case "instance/zone":
                return f"projects/1/zones/{machine.zone}"
            case "instance/service-accounts/default/token":
                return (
                    f'{{"access_token":"{MACHINE_TOKEN}","expires_in":3600,"token_type":"Bearer"}}'
                )
            case "instance/attributes/startup-script":
                return machine.start_script
        return None


def _tag(value: str) -> str:
    return f"{hash(value) & 0xFFFFFFFFFFFFFFFF:016x}"


@contextlib.contextmanager
def serve(handle: Callable[[Request], Answer]) -> Iterator[str]:
    """Serve on a free port of this machine, and yield the address (``http://127.0.0.1:PORT``)."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16
        disable_nagle_algorithm = True

        def _serve(self) -> None:
            url = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            request = Request(
                method=self.command,
                path=url.path,
                query=dict(parse_qsl(url.query, keep_blank_values=True)),
                headers={name.lower(): value for name, value in self.headers.items()},
                body=self.rfile.read(length),
            )
            answer = handle(request)
            if answer.lost:
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            if answer.status != 204:
                self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        do_GET = do_POST = do_PUT = do_DELETE = _serve

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is printed."""

    server = ThreadingHTTPServer((HOST, 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
    )
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def serve_cloud(cloud: FakeGcp) -> Iterator[str]:
    """Serve every service of a fake cloud: the ``endpoint`` of ``GcpClients``."""
    with serve(Services(cloud).handle) as endpoint:
        yield endpoint


@contextlib.contextmanager
def serve_metadata(cloud: FakeGcp, name: str) -> Iterator[str]:
    """Serve one machine's metadata; yields ``HOST:PORT``, for ``GCE_METADATA_HOST``."""
    with serve(Metadata(cloud, name).handle) as endpoint:
        yield endpoint.removeprefix("http://")
