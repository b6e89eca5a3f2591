"""What wrong throughputs cost: shares decided on estimates, judged by the truth."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cloudgavel.estimation.estimated_table import AloneCell, EstimatedTable, PairCell
from cloudgavel.mechanism.fixed_cluster.cluster import AcceleratorType, fixed_cluster
from cloudgavel.mechanism.fixed_cluster.shares import problem_of, standing_of
from cloudgavel.mechanism.fixed_cluster.state import ClusterJob, FixedClusterState, Leases
from cloudgavel.policies.fixed.cluster import cluster_of
from cloudgavel.policies.fixed.makespan import Makespan
from cloudgavel.policies.fixed.max_min_fairness import MaxMinFairness
from cloudgavel.policies.fixed.share_policy import SharePolicy
from cloudgavel.policies.sharing import PairSharing
from cloudgavel.simulator.generate import GeneratorSettings, generated_workload
from cloudgavel.simulator.throughputs import ThroughputTable

JOBS = 100
View = Callable[[EstimatedTable], ThroughputTable]
"""What policies are shown of a table that is partly measured."""
TYPES = tuple(AcceleratorType(accelerator=name, count=20) for name in ("v100", "p100", "k80"))


class Stage:
    """Jobs drawn over the kinds of a true table, all there at once."""

    def __init__(self, truth: ThroughputTable, seed: int, *, space_sharing: bool) -> None:
        dice = np.random.default_rng(seed)
        settings = GeneratorSettings(job_count=JOBS, several_accelerators=not space_sharing)
        workload = generated_workload(truth, settings, dice, name="drawn")
        self.jobs = workload.jobs
        self.cluster = fixed_cluster(TYPES, workload.gang_sizes)
        self.kinds = tuple(sorted({(job.kind, job.gang_size) for job in self.jobs}))
        number = {kind: at for at, kind in enumerate(self.kinds)}
        self.of_job = np.array([number[job.kind, job.gang_size] for job in self.jobs])
        self.space_sharing = space_sharing
        self.policies: tuple[SharePolicy, ...] = (
            MaxMinFairness(space_sharing=space_sharing),
            Makespan(space_sharing=space_sharing),
        )
        self.true_state = self.state(truth)
        self.best = {each.name: self.judged(each, truth).value for each in self.policies}

    def state(self, table: ThroughputTable) -> FixedClusterState:
        count, pools = len(self.jobs), len(self.cluster.pools)
        rates = np.array([table.rates(kind, self.cluster) for kind in self.kinds])
        sharing = None
        if self.space_sharing:
            sharing = PairSharing(
                kind_of_job=self.of_job, retained_share=table.retained(self.kinds, self.cluster)
            )
        return FixedClusterState(
            now_s=0.0,
            cluster=self.cluster,
            jobs=tuple(
                ClusterJob(
                    name=job.name,
                    gang_size=job.gang_size,
                    arrives_s=0.0,
                    weight=1.0,
                    deadline_s=None,
                    entity=None,
                )
                for job in self.jobs
            ),
            steps_left=np.array([job.total_steps for job in self.jobs]),
            rate=rates[self.of_job],
            sharing=sharing,
            credits=np.zeros((count, pools)),
            leases=Leases.none(count),
            standing=None,
            round_s=360.0,
            is_boundary=True,
            attained_service=np.zeros(count),
        )

    def judged(self, policy: SharePolicy, shown: ThroughputTable) -> "Judged":
        """True objective of what a policy decides when it is shown ``shown``, larger = better.

        Makespan counts as its inverse; a policy that leaves a job without anything has 0.
        """
        true = self.true_state
        standing = standing_of(self.state(shown), policy)
        throughput = np.zeros(len(self.jobs))
        alone = standing.second < 0
        first, pool, share = standing.first, standing.pool, standing.share
        np.add.at(throughput, first[alone], (share * true.rate[first, pool])[alone])
        if true.sharing is not None:
            one, other = first[~alone], standing.second[~alone]
            at, part = pool[~alone], share[~alone]
            kept = np.nan_to_num(true.sharing.retained_share)
            kind = true.sharing.kind_of_job
            mine = part * true.rate[one, at] * kept[kind[one], kind[other], at]
            theirs = part * true.rate[other, at] * kept[kind[other], kind[one], at]
            np.add.at(throughput, one, mine)
            np.add.at(throughput, other, theirs)
        value = policy.value(cluster_of(problem_of(true), with_steps=True), throughput)
        value = 1 / value if isinstance(policy, Makespan) else value
        cells: set[AloneCell] = set()
        pairs: set[PairCell] = set()
        for row, other_row, at_pool in zip(
            first.tolist(), standing.second.tolist(), pool.tolist(), strict=True
        ):
            accelerator = self.cluster.pools[at_pool].accelerator
            kind_here = self.kinds[self.of_job[row]]
            cells.add((accelerator, False, kind_here))
            if other_row >= 0:
                kind_beside = self.kinds[self.of_job[other_row]]
                cells.add((accelerator, False, kind_beside))
                pairs.add((accelerator, kind_here, kind_beside))
        return Judged(value=value, cells=frozenset(cells), pairs=frozenset(pairs))

    def losses(
        self, policy: SharePolicy, table: EstimatedTable, view: View, rounds: int
    ) -> tuple[float, ...]:
        """Part of the objective lost at first and after every round of running as decided.

        What ran is measured by then. Against deciding with the truth.
        """
        found = []
        for _ in range(rounds + 1):
            judged = self.judged(policy, view(table))
            found.append(1 - judged.value / self.best[policy.name])
            table = table.after_running(judged.cells, judged.pairs)
        return tuple(found)


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What a decision is worth in truth, and where it lets jobs run."""

    value: float
    cells: frozenset[AloneCell]
    pairs: frozenset[PairCell]
