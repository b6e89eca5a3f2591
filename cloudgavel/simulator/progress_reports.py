"""Progress that is told wrongly or late: what a scheduler hears is not what is."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from cloudgavel.errors import UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgressReports:
    """How far from the truth jobs' reports are.

    Every job has one factor for good, drawn between ``1 - error_share`` and ``1 + error_share``: of
    what it has done since it was started (fixed cluster: at all) it tells so much. What it says is
    renewed every ``late_s`` only. Saves, ends and exits are told as they are.
    """

    error_share: float = 0.0
    late_s: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.error_share < 1:
            raise UsageError(
                f"progress is told with an error of {self.error_share:g}: less than 1 is meant"
            )

    @property
    def are_true(self) -> bool:
        """Whether nothing is wrong with them."""
        return self.error_share == 0 and self.late_s == 0

    def factors(self, names: Iterable[str], seed: int) -> Mapping[str, float]:
        """Return every job's factor; in the order given, the same for the same seed."""
        dice = np.random.default_rng([seed, _PROGRESS])
        return {name: 1.0 + self.error_share * float(dice.uniform(-1.0, 1.0)) for name in names}


_PROGRESS = 0x70
"""Sets these dice apart from those that draw jobs from the same seed."""

TRUE_REPORTS = ProgressReports()
