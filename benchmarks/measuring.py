"""Registers benchmarks and measures each call in a process of its own: CPU seconds, peak memory."""

import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cloudgavel.policies.allocation import Allocation
from cloudgavel.policies.base import Policy
from cloudgavel.policies.problem import AllocationProblem

Call = Callable[[], object]
REPEATS = 3
REPEATED_UP_TO_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Case:
    """One call to time: ``prepare`` is not timed, what it returns is."""

    size: int
    severity: str
    prepare: Callable[[], Call]
    goal_s: float | None = None
    goal_mb: float | None = None


@dataclass(frozen=True, kw_only=True)
class Own:
    """What a call returns that knows better which of its seconds count."""

    cpu_s: float
    says: str


@dataclass(frozen=True, kw_only=True)
class Measured:
    size: int
    severity: str
    cpu_s: float
    """The median of three calls if one takes less than a second."""
    more_mb: float
    """Peak memory above what the process had before the call, the problem included."""
    says: str
    goal_s: float | None = None
    goal_mb: float | None = None

    @property
    def verdict(self) -> str:
        """``ok``, ``MISSED``, or nothing where there is no goal."""
        if self.goal_s is None and self.goal_mb is None:
            return ""
        slow = self.goal_s is not None and self.cpu_s > self.goal_s
        large = self.goal_mb is not None and self.more_mb > self.goal_mb
        return "MISSED" if slow or large else "ok"


BENCHMARKS: dict[str, Callable[[], Iterator[Case]]] = {}


def benchmark(name: str) -> Callable[[Callable[[], Iterator[Case]]], Callable[[], Iterator[Case]]]:
    def register(cases: Callable[[], Iterator[Case]]) -> Callable[[], Iterator[Case]]:
        BENCHMARKS[name] = cases
        return cases

    return register


def allocating(policy: Policy, problem: Callable[[], AllocationProblem]) -> Callable[[], Call]:
    """Prepare a whole call: build, solve, read back."""

    def prepare() -> Call:
        given = problem()
        return lambda: policy.allocate(given)

    return prepare


def measured(case: Case) -> Measured:
    """Run one case in a fork, so that its peak memory is its own."""
    there, here = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_run, args=(case, there))
    child.start()
    cpu_s, more_mb, says = here.recv()
    child.join()
    return Measured(
        size=case.size,
        severity=case.severity,
        cpu_s=cpu_s,
        more_mb=more_mb,
        says=says,
        goal_s=case.goal_s,
        goal_mb=case.goal_mb,
    )


def _run(case: Case, pipe) -> None:
    _warm()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    call = case.prepare()
    seconds = []
    for _ in range(REPEATS):
        start = time.process_time()
        found = call()
        spent_s = time.process_time() - start
        seconds.append(found.cpu_s if isinstance(found, Own) else spent_s)
        if spent_s > REPEATED_UP_TO_S:
            break
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pipe.send((statistics.median(seconds), (after - before) / 1024, _says(found)))


def _warm() -> None:
    """Load the solvers, so that imports are not part of a call."""
    import clarabel
    import highspy
    import scipy.optimize

    del clarabel, highspy, scipy


def _says(found: object) -> str:
    if isinstance(found, Own):
        return found.says
    if isinstance(found, Allocation):
        value = "-" if found.objective_value is None else f"{found.objective_value:.6g}"
        text = f"{found.status.value} {value}"
        if found.relaxed:
            text += f", {len(found.relaxed)} promises missed"
        return text + (f" ({found.message})" if found.message else "")
    return str(found)
