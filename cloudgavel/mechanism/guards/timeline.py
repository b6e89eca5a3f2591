"""Use of limited resources over time: quotas and the spend rate."""

import math
from collections.abc import Mapping

import numpy as np

from cloudgavel.policies.problem import FloatArray


class Timeline:
    """Who uses how much of what, from when to when; half-open spans ``[start, end)``.

    Resources without a limit are not recorded and never refuse.
    """

    def __init__(self, limits: Mapping[str, float]) -> None:
        self._limits = dict(limits)
        self._spans: dict[str, list[tuple[float, float, float]]] = {name: [] for name in limits}

    def fits(self, needs: Mapping[str, float], start_at_s: float, end_at_s: float) -> bool:
        """Whether ``needs`` more units stay within every limit all through the span."""
        for name, units in needs.items():
            limit = self._limits.get(name)
            if limit is None or units <= 0 or end_at_s <= start_at_s:
                continue
            if self._peak(name, start_at_s, end_at_s) + units > limit + 1e-9:
                return False
        return True

    def take(self, needs: Mapping[str, float], start_at_s: float, end_at_s: float) -> None:
        """Record a use; it is not checked."""
        for name, units in needs.items():
            if name in self._spans and units > 0 and end_at_s > start_at_s:
                self._spans[name].append((start_at_s, end_at_s, units))

    def earliest(
        self, needs: Mapping[str, float], ready_at_s: float, span_s: float, latest_at_s: float
    ) -> float | None:
        """Earliest start in ``[ready, latest]`` at which the span fits, or ``None``.

        Only the ready instant and the ends of recorded spans can be earliest, so only these are
        tried.
        """
        if ready_at_s > latest_at_s:
            return None
        if self.fits(needs, ready_at_s, ready_at_s + span_s):
            return ready_at_s
        ends = {
            end
            for name in needs
            for _, end, _ in self._spans.get(name, ())
            if ready_at_s < end <= latest_at_s and math.isfinite(end)
        }
        for start_at_s in sorted(ends):
            if self.fits(needs, start_at_s, start_at_s + span_s):
                return start_at_s
        return None

    def _peak(self, name: str, start_at_s: float, end_at_s: float) -> float:
        spans = self._spans[name]
        if not spans:
            return 0.0
        table: FloatArray = np.array(spans, dtype=np.float64)
        table = table[(table[:, 0] < end_at_s) & (table[:, 1] > start_at_s)]
        if not len(table):
            return 0.0
        # Use only rises at starts: the peak is at the span's own start or at one inside it.
        points = np.unique(np.maximum(table[:, 0], start_at_s))
        active = (table[None, :, 0] <= points[:, None]) & (table[None, :, 1] > points[:, None])
        return float((active @ table[:, 2]).max())
