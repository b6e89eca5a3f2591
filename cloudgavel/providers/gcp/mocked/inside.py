"""A fake project for a dry run: opened, used through the real provider, and gone."""

import contextlib
from collections.abc import Callable, Iterator

from cloudgavel.providers.gcp.clients import CallRecord, GcpClients
from cloudgavel.providers.gcp.mocked.cloud import FakeGcp
from cloudgavel.providers.gcp.mocked.server import serve_cloud


@contextlib.contextmanager
def mocked_gcp(
    cloud: FakeGcp, *, on_call: Callable[[CallRecord], None] | None = None
) -> Iterator[GcpClients]:
    """Serve a fake cloud on this machine and yield clients bound to it.

    They carry no credentials and know no other address, so nothing can reach the real cloud.
    ``cloud.vanish(name)`` takes a machine without a call (``providers.mirrored.follow_ends``).
    """
    with serve_cloud(cloud) as endpoint:
        yield GcpClients(endpoint=endpoint, on_call=on_call, repeat_reads_s=0.0)
