"""Space sharing: what two jobs keep of their rate on the same accelerators, and who shares."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class PairSharing:
    """What a job keeps of its own rate beside another one, by kinds of jobs.

    K kinds, R pools. A job of kind a beside one of kind b in pool r runs at
    ``retained_share[a, b, r]`` of its rate alone there, in [0, 1]; NaN = not measured, or the two
    do not fit together: such a pair is never formed. (Narayanan et al., OSDI 2020, section 3.1.)
    """

    kind_of_job: NDArray[np.int64]
    """(m,) kind of each job; -1 = shares with nobody."""
    retained_share: NDArray[np.float64]
    """(K, K, R)."""

    def __post_init__(self) -> None:
        """Check shapes and freeze the arrays (``ValueError`` names the mismatch)."""
        kinds = self.retained_share.shape
        if len(kinds) != 3 or kinds[0] != kinds[1]:
            raise ValueError(f"retained_share has shape {kinds}, expected (kinds, kinds, pools)")
        if self.kind_of_job.ndim != 1:
            raise ValueError("kind_of_job has one number per job")
        if self.kind_of_job.size and not -1 <= self.kind_of_job.min() <= (
            self.kind_of_job.max()
        ) < max(kinds[0], 1):
            raise ValueError(f"kind_of_job must lie in [-1, {kinds[0]})")
        self.kind_of_job.setflags(write=False)
        self.retained_share.setflags(write=False)


@dataclass(frozen=True, kw_only=True)
class ClassRows:
    """Shares of combinations, kept by classes of interchangeable jobs.

    C rows. Row c says that, summed over the jobs (or the pairs of jobs) of its classes,
    ``amount[c]`` units run at a time in ``pool[c]``: one job of class ``first[c]`` alone
    (``second[c]`` = -1), or one of ``first[c]`` beside another job, of ``second[c]``. The round
    mechanism decides which job of a class takes which turn; every job of a class gets the same.
    """

    class_of_job: NDArray[np.int64]
    """(m,) class of each job; -1 = gets nothing."""
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    pool: NDArray[np.int64]
    amount: NDArray[np.float64]
    """(C,) in [0, jobs of the class]."""

    def shares(self, pool_count: int) -> NDArray[np.float64]:
        """(m, R) share of time of each job in each pool, alone and beside others together."""
        class_count = int(max(self.class_of_job.max(initial=-1), self.first.max(initial=-1))) + 1
        total = np.zeros((class_count, pool_count))
        np.add.at(total, (self.first, self.pool), self.amount)
        paired = self.second >= 0
        np.add.at(total, (self.second[paired], self.pool[paired]), self.amount[paired])
        known = self.class_of_job >= 0
        members = np.bincount(self.class_of_job[known], minlength=class_count)
        per_job = total / np.maximum(members, 1)[:, None]
        shares = np.zeros((self.class_of_job.size, pool_count))
        shares[known] = per_job[self.class_of_job[known]]
        return shares
