"""A process that can talk to itself and to nobody else."""

import contextlib
import ipaddress
import socket
from collections.abc import Iterator
from typing import Any
from unittest import mock


class WouldLeaveThisMachine(RuntimeError):
    """A connection to another machine was about to be opened."""


@contextlib.contextmanager
def loopback_only() -> Iterator[None]:
    """Refuse every connection and every name but this machine's own, in all threads.

    Local sockets of the file system stay usable. Connections that are open already go on.
    """
    find, connect, connect_ex = (
        socket.getaddrinfo,
        socket.socket.connect,
        socket.socket.connect_ex,
    )

    def guarded_find(host: Any, *rest: Any, **named: Any) -> Any:
        _refuse_others(host)
        return find(host, *rest, **named)

    def guarded_connect(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX:
            _refuse_others(address[0])
        connect(self, address)

    def guarded_connect_ex(self: socket.socket, address: Any) -> int:
        if self.family != socket.AF_UNIX:
            _refuse_others(address[0])
        return connect_ex(self, address)

    with (
        mock.patch.object(socket, "getaddrinfo", guarded_find),
        mock.patch.object(socket.socket, "connect", guarded_connect),
        mock.patch.object(socket.socket, "connect_ex", guarded_connect_ex),
    ):
        yield


def _refuse_others(host: Any) -> None:
    name = host.decode() if isinstance(host, bytes) else host
    if name in (None, "", "localhost"):
        return
    try:
        own = ipaddress.ip_address(name).is_loopback
    except ValueError:
        own = False
    if not own:
        raise WouldLeaveThisMachine(f"a connection to {name} was about to be opened")
