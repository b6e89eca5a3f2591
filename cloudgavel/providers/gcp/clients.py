"""Google's clients: made late, kept, watched, and replaceable by ones that reach no cloud."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CALL_TIMEOUT_S = 60.0
REPEAT_READS_S = 30.0
"""Listings and the like are repeated for so long; what creates or deletes never by itself."""
POOL_SIZE = 50
RESOURCE_MANAGER_URL = "https://cloudresourcemanager.googleapis.com"
IAM_URL = "https://iam.googleapis.com"
MOST_PERMISSIONS = 100
"""Asked about at once."""

_COMPUTE = {
    "compute.instances": "InstancesClient",
    "compute.zone_operations": "ZoneOperationsClient",
    "compute.machine_types": "MachineTypesClient",
    "compute.accelerator_types": "AcceleratorTypesClient",
    "compute.images": "ImagesClient",
    "compute.regions": "RegionsClient",
    "compute.projects": "ProjectsClient",
}
_WRITES = frozenset(
    {
        "insert_unary",
        "delete_unary",
        "create_node",
        "delete_node",
        "create_queued_resource",
        "delete_queued_resource",
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class CallRecord:
    """One call as it is about to be sent."""

    service: str
    operation: str
    parameters: Mapping[str, Any]


class GcpClients:
    """One client per service; safe between threads.

    With ``endpoint`` (``http://127.0.0.1:PORT``) every service is there and no credentials are
    looked for; otherwise they are the application default ones. ``on_call`` hears of every call.
    Nothing is imported, read or sent before the first call.
    """

    def __init__(
        self,
        *,
        endpoint: str | None = None,
        credentials: Any = None,
        on_call: Callable[[CallRecord], None] | None = None,
        repeat_reads_s: float = REPEAT_READS_S,
    ) -> None:
        """``repeat_reads_s`` = 0 sends every call once."""
        self.endpoint = endpoint
        self._credentials = credentials
        self._on_call = on_call
        self._repeat_reads_s = repeat_reads_s
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()

    def call(self, service: str, operation: str, request: Mapping[str, Any]) -> Any:
        """Send one call and return the SDK's answer; its errors pass (``failures.explain``).

        ``service`` is ``compute.<collection>``, ``tpu`` or ``billing``; ``operation`` the method
        of its client; ``request`` the request message's fields.
        """
        client = self._client(service)
        if self._on_call is not None:
            self._on_call(
                CallRecord(service=service, operation=operation, parameters=dict(request))
            )
        return getattr(client, operation)(
            request=dict(request),
            retry=None if operation in _WRITES else self._repeating(),
            timeout=CALL_TIMEOUT_S,
        )

    def granted(self, project: str, permissions: Sequence[str]) -> frozenset[str]:
        """Ask which of the permissions we have on a project; Google's errors pass.

        The resource manager's own client would be one more package for this one question.
        """
        base = (self.endpoint or RESOURCE_MANAGER_URL).rstrip("/")
        found: set[str] = set()
        for start in range(0, len(permissions), MOST_PERMISSIONS):
            asked = {"permissions": list(permissions[start : start + MOST_PERMISSIONS])}
            answer = self._plain("POST", f"{base}/v1/projects/{project}:testIamPermissions", asked)
            found.update(answer.get("permissions", ()))
        return frozenset(found)

    def service_account(self, email: str) -> dict[str, Any]:
        """Return what IAM knows of a service account (``uniqueId``); Google's errors pass."""
        return self._iam("GET", f"projects/-/serviceAccounts/{email}")

    def account_policy(self, email: str) -> dict[str, Any]:
        """Return who may do what with a service account (``bindings``); Google's errors pass."""
        return self._iam("POST", f"projects/-/serviceAccounts/{email}:getIamPolicy")

    def identity_provider(self, name: str) -> dict[str, Any]:
        """Return a workload identity provider by its full name; Google's errors pass."""
        return self._iam("GET", name)

    def _iam(self, method: str, name: str) -> dict[str, Any]:
        base = (self.endpoint or IAM_URL).rstrip("/")
        return self._plain(method, f"{base}/v1/{name}", {} if method == "POST" else None)

    def _plain(self, method: str, url: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        """Send one call for which no client is worth a package."""
        from google.api_core import exceptions

        session = self._client("compute.projects").transport._session
        answer = session.request(method, url, json=body, timeout=CALL_TIMEOUT_S)
        if answer.status_code >= 400:
            error_of: Any = exceptions.from_http_response
            raise error_of(answer)
        return dict(answer.json())

    def _client(self, service: str) -> Any:
        with self._lock:
            client = self._clients.get(service)
            if client is None:
                client = self._clients[service] = self._make(service)
            return client

    def _make(self, service: str) -> Any:
        options: dict[str, Any] = {"credentials": self._credentials}
        if self.endpoint is not None:
            options["client_options"] = {"api_endpoint": self.endpoint}
            if self._credentials is None:
                from google.auth.credentials import AnonymousCredentials

                made_up: Any = AnonymousCredentials
                options["credentials"] = made_up()
        if service in _COMPUTE:
            from google.cloud import compute_v1

            made = getattr(compute_v1, _COMPUTE[service])(**options)
        elif service == "tpu":
            from google.cloud import tpu_v2

            made = tpu_v2.TpuClient(transport="rest", **options)
        elif service == "billing":
            from google.cloud import billing_v1

            made = billing_v1.CloudCatalogClient(transport="rest", **options)
        else:
            raise ValueError(f"{service} is no service of Google Cloud used here")
        _widen_pool(made)
        return made

    def _repeating(self) -> Any:
        if self._repeat_reads_s <= 0:
            return None
        from google.api_core import exceptions, retry

        return retry.Retry(
            predicate=retry.if_exception_type(
                exceptions.TooManyRequests,
                exceptions.BadGateway,
                exceptions.ServiceUnavailable,
                exceptions.GatewayTimeout,
                ConnectionError,
            ),
            initial=0.5,
            maximum=8.0,
            timeout=self._repeat_reads_s,
        )


def _widen_pool(client: Any) -> None:
    """Keep a connection per launch thread: the default of ten would throw the others away."""
    from requests.adapters import HTTPAdapter

    session = getattr(client.transport, "_session", None)
    if session is not None:
        for scheme in ("https://", "http://"):
            session.mount(scheme, HTTPAdapter(pool_connections=4, pool_maxsize=POOL_SIZE))
