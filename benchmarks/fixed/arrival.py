"""One job more, 100 jobs: target 2 ms in the solver, hot. From scratch, as every call is, too."""

import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.fixed.clusters import cluster_problem
from benchmarks.measuring import Case, Own, benchmark
from cloudgavel.policies.fixed.cluster import cluster_of
from cloudgavel.policies.fixed.max_min_fairness import MaxMinFairness
from cloudgavel.policies.fixed.share_program import one_each, share_program
from cloudgavel.policies.solve import WarmModel

ARRIVALS = 40


def arriving(m: int, severity: str, *, hot: bool) -> Callable[[], Callable[[], Own]]:
    def prepare() -> Callable[[], Own]:
        cluster = cluster_of(cluster_problem(m + 1, severity))
        program = share_program(
            cluster, MaxMinFairness().goal(cluster), one_each(cluster, space_sharing=False)
        )
        built, rows = program.build(program.singles)

        def call() -> Own:
            seconds = []
            for job in range(0, m + 1, max(1, m // ARRIVALS)):
                model = WarmModel(built, is_small_and_scaled=True)
                own = np.flatnonzero(program.singles.first == job)
                if hot:
                    # The job is not there yet: nothing of it runs, and nothing is owed to it.
                    model.set_columns(own, np.zeros(own.size), np.zeros(own.size))
                    model.set_row(rows.level[job], -np.inf, np.inf)
                    model.solve()
                    model.set_columns(own, np.zeros(own.size), np.full(own.size, np.inf))
                    model.set_row(rows.level[job], 0.0, np.inf)
                begin = time.process_time()
                answer = model.solve()
                seconds.append(time.process_time() - begin)
                assert answer.is_usable
            return Own(
                cpu_s=statistics.median(seconds),
                says=f"median of {len(seconds)} arrivals, {1000 * max(seconds):.2f} ms at most",
            )

        return call

    return prepare


@benchmark("arrival")
def cases() -> Iterator[Case]:
    for hot in (False, True):
        for severity in ("different", "near-ties", "nine orders"):
            for m in (100, 400) if severity == "different" else (100,):
                yield Case(
                    size=m,
                    severity=f"{'hot' if hot else 'from scratch'}, {severity}",
                    goal_s=0.002 if hot and m == 100 else None,
                    prepare=arriving(m, severity, hot=hot),
                )
