"""Amazon's clients: made late, kept, watched, and replaceable by ones that reach no cloud."""

import functools
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

POOL_SIZE = 50
"""Connections per client: a launch of 50 machines waits for none."""
CONNECT_TIMEOUT_S = 10
READ_TIMEOUT_S = 60
ATTEMPTS = 5

PRICE_LIST_REGION = "us-east-1"
"""The price list's own endpoint, whatever the region asked about."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallRecord:
    """One call as it is about to be sent."""

    service: str
    region: str
    operation: str
    parameters: Mapping[str, Any]


class ClientMaker(Protocol):
    """Makes one boto3 client; ``attempts`` is how often one call may be sent in all."""

    def __call__(self, service: str, region: str, *, attempts: int) -> Any:
        """Return a client of ``service`` in ``region``."""
        ...


class AwsClients:
    """One client per service, region and way of repeating; safe between threads.

    ``client(..., once=True)`` never repeats a call by itself: the SDK would repeat
    ``InsufficientInstanceCapacity`` (an HTTP 500) instead of letting the next zone be asked.
    """

    def __init__(
        self,
        make: ClientMaker | None = None,
        *,
        on_call: Callable[[CallRecord], None] | None = None,
    ) -> None:
        """``make`` replaces boto3's default session; ``on_call`` hears of every call."""
        self._make = make or default_maker()
        self._on_call = on_call
        self._clients: dict[tuple[str, str, int], Any] = {}
        self._lock = threading.Lock()

    def client(self, service: str, region: str, *, once: bool = False) -> Any:
        """Return the client of a service in a region."""
        key = (service, region, 1 if once else ATTEMPTS)
        with self._lock:
            client = self._clients.get(key)
            if client is None:
                client = self._make(service, region, attempts=key[2])
                if self._on_call is not None:
                    self._watch(client, service, region, self._on_call)
                self._clients[key] = client
            return client

    @staticmethod
    def _watch(
        client: Any, service: str, region: str, on_call: Callable[[CallRecord], None]
    ) -> None:
        def heard(params: dict[str, Any], model: Any, **_: Any) -> None:
            on_call(
                CallRecord(
                    service=service, region=region, operation=model.name, parameters=dict(params)
                )
            )

        # A maker may give one client for several ways of repeating: it is heard once.
        client.meta.events.register(
            "provide-client-params.*.*", heard, unique_id="cloudgavel-heard"
        )


def default_maker(*, endpoint_url: str | None = None, session: Any = None) -> ClientMaker:
    """Return a maker over a boto3 session (its own by default) and, if given, one endpoint.

    Nothing is imported, read or sent before the first client is asked for.
    """
    found: list[Any] = [] if session is None else [session]

    def make(service: str, region: str, *, attempts: int) -> Any:
        import boto3
        from botocore.config import Config

        if not found:
            found.append(boto3.session.Session())
        config = Config(
            retries={"total_max_attempts": attempts, "mode": "standard"},
            max_pool_connections=POOL_SIZE,
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            user_agent_extra="cloudgavel",
        )
        return found[0].client(
            service, region_name=region, config=config, endpoint_url=endpoint_url
        )

    return make


@functools.cache
def known_regions() -> tuple[str, ...]:
    """Return every region of EC2 that the SDK knows, from its own files; asks nobody."""
    import boto3

    session = boto3.session.Session()
    return tuple(
        sorted(
            {
                region
                for partition in session.get_available_partitions()
                for region in session.get_available_regions("ec2", partition_name=partition)
            }
        )
    )
