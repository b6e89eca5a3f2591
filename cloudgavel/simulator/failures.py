"""Processes that fail on a fixed cluster, and what they lose."""

import numpy as np

from cloudgavel.policies.problem import FloatArray, IntArray

_FAILURES = 0x66
"""Sets these dice apart from those that draw jobs from the same seed."""


class Failures:
    """When each job fails next, counted in accelerator-seconds that it held.

    Exponential, with dice of every job's own: a job fails after the same accelerator-seconds under
    every policy.
    """

    def __init__(self, per_hour: float, seed: int) -> None:
        """``per_hour``: of one accelerator in use; 0 = never."""
        self.per_hour = per_hour
        self._seed = seed
        self._dice: dict[int, np.random.Generator] = {}

    def first(self, jobs: IntArray) -> FloatArray:
        """(m,) accelerator-seconds until the first failure; infinite without any."""
        return np.array([self.next(job, 0.0) for job in jobs.tolist()], dtype=np.float64)

    def next(self, job: int, held_s: float) -> float:
        """Accelerator-seconds at which the job fails next, if it has held ``held_s`` now."""
        if self.per_hour <= 0:
            return np.inf
        dice = self._dice.get(job)
        if dice is None:
            dice = self._dice[job] = np.random.default_rng([self._seed, _FAILURES, job])
        return held_s + float(dice.exponential(3600.0 / self.per_hour))

    def forget(self, job: int) -> None:
        """The job has ended."""
        self._dice.pop(job, None)


def unsaved_s(running_s: float, save_every_s: float) -> float:
    """Seconds of work since the last save, after so many seconds of running."""
    return max(running_s, 0.0) % save_every_s
