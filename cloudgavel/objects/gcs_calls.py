"""Calls on Cloud Storage's JSON interface with the standard library alone: a rented machine needs
no package beyond Python to use the run's store.

Connections are kept per thread, a proxy of the environment is used for https, tokens come from
``google.auth`` where it is installed and from the machine's metadata server elsewhere.
"""

import contextlib
import http.client
import json
import os
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from cloudgavel.objects.keyless import NoAccess, google_token

ENDPOINT = "https://storage.googleapis.com"
METADATA_HOST = "metadata.google.internal"
SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
TIMEOUT_S = 30.0
ATTEMPTS = 5
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 8.0
TOKEN_MARGIN_S = 300.0
TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})


class NoToken(Exception):
    """There are no credentials for Google Cloud."""


class Refused(Exception):
    """An answer that is no success, after as many tries as made sense."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """One answer, read whole."""

    status: int
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes

    def json(self) -> dict[str, Any]:
        """Return the body as JSON."""
        return dict(json.loads(self.body or b"{}"))


class Calls:
    """Sends calls to one endpoint, repeating those that may work the next time.

    An endpoint other than Google's is called without a token unless ``token`` gives one. Safe
    between threads.
    """

    def __init__(
        self,
        *,
        endpoint: str | None = None,
        token: Callable[[], str] | None = None,
        attempts: int = ATTEMPTS,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._base = urlsplit(endpoint or ENDPOINT)
        self._token = token or (None if endpoint else GoogleToken(monotonic=monotonic))
        self._attempts = attempts
        self._sleep = sleep
        self._local = threading.local()

    def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        accept: frozenset[int] = frozenset(),
        before_repeat: Callable[[], None] | None = None,
    ) -> Reply:
        """Send one call until it works; ``Refused``, ``NoToken`` or ``OSError`` when it does not.

        A status of ``accept`` is returned like a success. ``before_repeat`` hears of each further
        try: an earlier one may have worked and only its answer been lost.
        """
        for tries in range(1, self._attempts + 1):
            last = tries == self._attempts
            if tries > 1 and before_repeat is not None:
                before_repeat()
            try:
                with self.opened(method, path, query=query, headers=headers, body=body) as answer:
                    reply = Reply(
                        status=answer.status,
                        headers={name.lower(): value for name, value in answer.getheaders()},
                        body=answer.read(),
                    )
            except (OSError, http.client.HTTPException) as error:
                if last:
                    raise OSError(str(error) or type(error).__name__) from error
                self.pause(tries)
                continue
            if reply.status < 300 or reply.status in accept:
                return reply
            if reply.status == 401 and isinstance(self._token, GoogleToken) and not last:
                self._token.forget()
                continue
            if reply.status not in TRANSIENT or last:
                raise Refused(reply.status, message_of(reply.body))
            self.pause(tries)
        raise AssertionError("the last try returns or raises")

    def pause(self, tries: int) -> None:
        """Wait before the next try: longer each time, never two callers in step."""
        spread = 0.5 + uuid.uuid4().int % 1000 / 1000
        self._sleep(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (tries - 1)) * spread)

    @contextlib.contextmanager
    def opened(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Iterator[http.client.HTTPResponse]:
        """Send once and give the answer to be read; the connection is kept if it was read whole."""
        sent = {"Content-Length": str(len(body)), "User-Agent": "cloudgavel", **(headers or {})}
        if self._token is not None:
            sent["Authorization"] = f"Bearer {self._token()}"
        connection = self._connection()
        whole = False
        try:
            connection.request(
                method, path + (f"?{urlencode(query)}" if query else ""), body=body, headers=sent
            )
            answer = connection.getresponse()
            yield answer
            whole = answer.isclosed()
        finally:
            if not whole:
                connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        kept: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if kept is None:
            kept = self._local.connection = self._connect()
        return kept

    def _connect(self) -> http.client.HTTPConnection:
        host = self._base.hostname or ""
        if self._base.scheme == "http":
            return http.client.HTTPConnection(host, self._base.port or 80, timeout=TIMEOUT_S)
        port = self._base.port or 443
        proxy = urllib.request.getproxies().get("https")
        if proxy and not urllib.request.proxy_bypass(host):
            through = urlsplit(proxy)
            connection = http.client.HTTPSConnection(
                through.hostname or "", through.port or 3128, timeout=TIMEOUT_S
            )
            connection.set_tunnel(host, port)
            return connection
        return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S)


class GoogleToken:
    """An access token, renewed five minutes before its end; raises ``NoToken``.

    ``ask`` gives ``(token, seconds that it lasts)``; by default ``google.auth``, where it is
    installed, or the machine's metadata server.
    """

    def __init__(
        self,
        *,
        monotonic: Callable[[], float],
        ask: Callable[[], tuple[str, float]] | None = None,
    ) -> None:
        self._monotonic = monotonic
        self._ask = ask or self._fresh
        self._credentials: Any = None
        self._token = ""
        self._until_s = float("-inf")
        self._lock = threading.Lock()

    def __call__(self) -> str:
        """Return a token that holds for a while."""
        with self._lock:
            if self._monotonic() >= self._until_s:
                self._token, lasts_s = self._ask()
                self._until_s = self._monotonic() + max(0.0, lasts_s - TOKEN_MARGIN_S)
            return self._token

    def forget(self) -> None:
        """Have the next call fetch a new token: this one was refused."""
        with self._lock:
            self._until_s = float("-inf")

    def _fresh(self) -> tuple[str, float]:
        try:
            import google.auth
            from google.auth import exceptions
            from google.auth.transport.requests import Request
        except ImportError:
            return metadata_token()
        try:
            if self._credentials is None:
                self._credentials, _ = google.auth.default(scopes=[SCOPE])
            self._credentials.refresh(Request())
        except exceptions.GoogleAuthError as error:
            raise NoToken("there are no credentials for Google Cloud") from error
        # Its own record of the end is in wall-clock time; an hour is what Google gives.
        return str(self._credentials.token), 3600.0


def federated_token(
    provider: str, account: str, endpoint: str | None = None
) -> Callable[[], tuple[str, float]]:
    """Return what asks for an account's token by this AWS machine's role (``objects.keyless``)."""

    def ask() -> tuple[str, float]:
        # Where the machine's metadata are is the SDKs' own business; a signature tells the time.
        environment, now_s = os.environ, time.time()  # noqa: TID251
        try:
            return google_token(provider, account, environment, now_s=now_s, endpoint=endpoint)
        except NoAccess as error:
            raise NoToken(str(error)) from error
        except (KeyError, ValueError) as error:
            raise NoToken(f"an answer of Google or AWS is not understood: {error}") from error

    return ask


def metadata_token(host: str = METADATA_HOST) -> tuple[str, float]:
    """Ask the machine's metadata server: ``(token, seconds that it lasts)``; ``NoToken``."""
    connection = http.client.HTTPConnection(host, timeout=5)
    try:
        connection.request(
            "GET",
            "/computeMetadata/v1/instance/service-accounts/default/token",
            headers={"Metadata-Flavor": "Google"},
        )
        answer = connection.getresponse()
        document = json.loads(answer.read()) if answer.status == 200 else {}
        return str(document["access_token"]), float(document["expires_in"])
    except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
        raise NoToken("this machine has no service account of Google Cloud") from error
    finally:
        connection.close()


def message_of(body: bytes) -> str:
    """Return what an error says: Google's message, or the start of the text."""
    try:
        return str(json.loads(body)["error"]["message"]).rstrip(".")
    except (ValueError, KeyError, TypeError):
        return body[:200].decode(errors="replace").strip()
