"""Nobody is in charge any more: when a machine has to save and end by itself."""


class Watchdog:
    """Counts real seconds since the last sign of a controller.

    A sign is newer orders or a *changed* lease. What the lease says is not compared with this
    machine's clock, so clocks that differ do no harm. Time is an argument (monotonic seconds).
    """

    def __init__(self, now_s: float, *, lease_s: float) -> None:
        self.lease_s = lease_s
        self._sign_at_s = now_s
        self._lease: float | None = None

    def saw_orders(self, now_s: float, *, lease_s: float) -> None:
        """Newer orders were read; they say how long a lease holds from now on."""
        self._sign_at_s = now_s
        self.lease_s = lease_s

    def saw_lease(self, now_s: float, renewed_at_s: float) -> None:
        """Read the lease; only a change of it is a sign of life."""
        if renewed_at_s != self._lease:
            self._lease = renewed_at_s
            self._sign_at_s = now_s

    def expired(self, now_s: float) -> bool:
        """Whether the last sign is longer ago than the lease holds."""
        return now_s - self._sign_at_s > self.lease_s
