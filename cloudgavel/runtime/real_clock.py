"""The real clock: the only place where cloudgavel asks what time it is."""

import time


class RealClock:
    """UNIX seconds of this machine."""

    def now_s(self) -> float:
        """Return the present instant in UNIX seconds, UTC."""
        return time.time()


def now_s() -> float:
    """Return the present instant in UNIX seconds, UTC."""
    return time.time()
