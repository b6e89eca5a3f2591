"""A run whose throughputs are known in part, and the truth of it."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from cloudgavel.estimation.job_rates import estimated_rates
from cloudgavel.jobs.spec import JobSpec, RunSpec

_ESTIMATE = 0x65
"""Sets these dice apart from those that draw jobs from the same seed."""


def believed_run(truth: RunSpec, *, measured_share: float, seed: int) -> RunSpec:
    """Return the run with only a part of its given throughputs: one of each job, and as many more.

    What is left out the loop estimates and measures as it does in a real run. From one seed a
    larger share keeps the same ones and more.
    """
    dice = np.random.default_rng([seed, _ESTIMATE])
    jobs = []
    for job in truth.jobs:
        labels = sorted(job.throughput_steps_per_s)
        draws = dice.uniform(size=len(labels))
        first = int(draws.argmin()) if labels else 0
        kept = {
            label: job.throughput_steps_per_s[label]
            for number, label in enumerate(labels)
            if number == first or draws[number] < measured_share
        }
        jobs.append(replace(job, throughput_steps_per_s=MappingProxyType(kept)))
    return replace(truth, jobs=tuple(jobs))


def true_rates(job: JobSpec) -> Mapping[str, float]:
    """Return steps/s by label: as given, and the median of the estimate where nothing is."""
    estimates = estimated_rates(job)
    medians = {label: each.median_steps_per_s for label, each in estimates.items()}
    return {**medians, **job.throughput_steps_per_s}
