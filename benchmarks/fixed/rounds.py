"""Rounds on credits: worst gap between shares and fractions received, and the cost of a round."""

import time
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.fixed.clusters import cluster_problem
from benchmarks.measuring import Case, benchmark
from cloudgavel.mechanism.credits import Credits, next_round, rows_of_shares
from cloudgavel.policies.fixed.max_min_fairness import MaxMinFairness


def playing(m: int, rounds: int) -> Callable[[], Callable[[], str]]:
    def prepare() -> Callable[[], str]:
        problem = cluster_problem(m, "different")
        shares = MaxMinFairness().allocate(problem).shares
        names = {job.name: row for row, job in enumerate(problem.jobs)}

        def call() -> str:
            credits, held = Credits(), ()
            got = np.zeros(shares.shape)
            kept = starts = 0
            start = time.process_time()
            for _ in range(rounds):
                found = next_round(problem, rows_of_shares(shares), credits, held=held)
                credits, held = found.credits, found.turns
                for turn in found.turns:
                    got[names[turn.jobs[0]], turn.pool] += 1
                    kept += turn.extended
                    starts += not turn.extended
            each = (time.process_time() - start) / rounds
            gap = np.maximum(shares - got / rounds, 0).max()
            return (
                f"worst gap {gap:.5f} after {rounds} rounds, {1000 * each:.1f} ms a round, "
                f"{kept / (kept + starts):.0%} of leases extended"
            )

        return call

    return prepare


@benchmark("rounds")
def cases() -> Iterator[Case]:
    for m, rounds in ((8, 3000), (64, 3000), (512, 60)):
        yield Case(size=m, severity="credits", prepare=playing(m, rounds))
