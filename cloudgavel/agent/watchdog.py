"""Nobody is in charge any more: when a machine has to save and end by itself."""

MOST_BLIND_S = 3600.0
"""A machine that cannot reach its store for so long ends: it bills, and nothing of it is saved."""


class Watchdog:
    """Counts real seconds since the last sign of a controller.

    A sign is newer orders or a *changed* lease. What the lease says is not compared with this
    machine's clock, so clocks that differ do no harm. Time is an argument (monotonic seconds).

    While the store does not answer, nobody can give a sign and nothing could be saved: that time
    does not count, up to ``MOST_BLIND_S``.
    """

    def __init__(self, now_s: float, *, lease_s: float) -> None:
        self.lease_s = lease_s
        self._sign_at_s = now_s
        self._lease: float | None = None
        self._blind_since_s: float | None = None

    def saw_orders(self, now_s: float, *, lease_s: float) -> None:
        """Newer orders were read; they say how long a lease holds from now on."""
        self._sign_at_s = now_s
        self.lease_s = lease_s

    def saw_lease(self, now_s: float, renewed_at_s: float) -> None:
        """Read the lease; only a change of it is a sign of life."""
        self.looked(now_s)
        if renewed_at_s != self._lease:
            self._lease = renewed_at_s
            self._sign_at_s = now_s

    def looked(self, now_s: float) -> None:
        """The store answered: time counts again."""
        if self._blind_since_s is not None:
            self._sign_at_s += now_s - self._blind_since_s
            self._blind_since_s = None

    def could_not_look(self, now_s: float) -> None:
        """The store did not answer: from now on time does not count."""
        if self._blind_since_s is None:
            self._blind_since_s = now_s

    def expired(self, now_s: float) -> bool:
        """Whether the last sign is longer ago than the lease holds."""
        if self._blind_since_s is not None:
            return now_s - self._blind_since_s > MOST_BLIND_S
        return now_s - self._sign_at_s > self.lease_s
