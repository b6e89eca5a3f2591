"""What policies see of a fixed cluster's jobs: rates as far as they are measured, steps as told.

The truth is what the simulation runs on (``simulator.cluster_run``); without an estimate and with
true reports the two are the same arrays. What a job ran on is measured from then on
(``estimation.estimated_table``), and other estimates learn from it.
"""

from collections.abc import Sequence

import numpy as np

from cloudgavel.estimation.estimated_table import EstimatedTable, estimated_table
from cloudgavel.mechanism.fixed_cluster.cluster import FixedCluster
from cloudgavel.mechanism.fixed_cluster.state import Leases
from cloudgavel.policies.problem import FloatArray, IntArray
from cloudgavel.simulator.progress_reports import ProgressReports
from cloudgavel.simulator.throughputs import JobKind, ThroughputTable
from cloudgavel.simulator.workload import Workload

_ESTIMATE = 0x65
"""Sets these dice apart from those that draw jobs from the same seed."""
LEAST_LEFT_SHARE = 1e-3
"""A job that goes on is not believed to be done, whatever it says."""


class Beliefs:
    """Mutable: it learns. ``rate`` and ``retained`` are (K, R) and (K, K, R), as of the truth."""

    def __init__(
        self,
        table: ThroughputTable,
        kinds: tuple[JobKind, ...],
        cluster: FixedCluster,
        workload: Workload,
        *,
        measured_share: float | None,
        reports: ProgressReports,
        seed: int,
    ) -> None:
        """``measured_share``: of the throughputs at first; ``None`` = all of them."""
        self._kinds, self._cluster = kinds, cluster
        self._table: EstimatedTable | None = None
        self._learnt: set[object] = set()
        self._reports = reports
        self._told: dict[int, tuple[float, float]] = {}
        self._factor = np.array(
            list(reports.factors([job.name for job in workload.jobs], seed).values())
        )
        self._total = np.array([job.total_steps for job in workload.jobs])
        if measured_share is not None:
            names = {kind[0] for kind in kinds}
            dice = np.random.default_rng([seed, _ESTIMATE])
            self._table = estimated_table(
                {
                    place: {kind: rate for kind, rate in row.items() if kind[0] in names}
                    for place, row in table.alone.items()
                },
                {
                    place: {
                        pair: rate
                        for pair, rate in row.items()
                        if pair[0][0] in names and pair[1][0] in names
                    }
                    for place, row in table.beside.items()
                },
                measured_share=measured_share,
                dice=dice,
            )
        self.rate: FloatArray | None = None
        """``None``: as the truth is."""
        self.retained: FloatArray | None = None
        self._refresh()

    @property
    def are_estimates(self) -> bool:
        """Whether rates differ from the truth."""
        return self._table is not None

    def learn(self, leases: Leases, kind_of_row: IntArray, ran: Sequence[bool]) -> bool:
        """Take in what ran under these leases; whether anything is known that was not before."""
        if self._table is None:
            return False
        alone: list[tuple[str, bool, JobKind]] = []
        pairs: list[tuple[str, JobKind, JobKind]] = []
        for row in np.flatnonzero(leases.pool >= 0).tolist():
            if not ran[row]:
                continue
            pool = self._cluster.pools[int(leases.pool[row])]
            kind = self._kinds[int(kind_of_row[row])]
            other = int(leases.partner[row])
            if other < 0:
                cell = (pool.accelerator, pool.spread, kind)
                if cell not in self._learnt:
                    self._learnt.add(cell)
                    alone.append(cell)
            else:
                pair = (pool.accelerator, kind, self._kinds[int(kind_of_row[other])])
                if pair not in self._learnt:
                    self._learnt.add(pair)
                    pairs.append(pair)
        if not alone and not pairs:
            return False
        known = self._table.after_running(alone, pairs)
        if known is self._table:
            return False
        self._table = known
        self._refresh()
        return True

    def steps_left(self, jobs: IntArray, left: FloatArray, now_s: float) -> FloatArray:
        """(m,) steps that the reports say are left; ``jobs`` are numbers in the workload."""
        if self._reports.are_true:
            return left
        total = self._total[jobs]
        told = total - self._factor[jobs] * (total - left)
        if self._reports.late_s > 0:
            for row, job in enumerate(jobs.tolist()):
                at_s, before = self._told.get(job, (-np.inf, 0.0))
                if now_s - at_s >= self._reports.late_s:
                    self._told[job] = (now_s, float(told[row]))
                else:
                    told[row] = before
        return np.maximum(told, LEAST_LEFT_SHARE * total)

    def _refresh(self) -> None:
        if self._table is None:
            return
        seen = ThroughputTable(alone=self._table.alone, beside=self._table.beside)
        rate = np.array([seen.rates(kind, self._cluster) for kind in self._kinds])
        rate[:, self._cluster.gang > np.array(self._cluster.counts)] = 0.0
        self.rate = rate
        if any(seen.beside.values()):
            self.retained = seen.retained(self._kinds, self._cluster)
