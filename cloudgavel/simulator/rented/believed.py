"""A run whose throughputs are known in part: what policies on rented machines are told."""

from dataclasses import replace
from types import MappingProxyType

import numpy as np

from cloudgavel.estimation.estimated_table import estimated_table
from cloudgavel.jobs.spec import RunSpec
from cloudgavel.jobs.throughput import estimate_steps_per_s

_ESTIMATE = 0x65
"""Sets these dice apart from those that draw jobs from the same seed."""


def believed_run(truth: RunSpec, *, measured_share: float, seed: int) -> RunSpec:
    """Return the run with only a part of its throughputs measured, the others estimated.

    Every job counts as a kind of its own, of which one throughput at least is measured. A gang that
    the truth knows nothing of stays unknown.
    """
    alone: dict[tuple[str, bool], dict[tuple[str, int], float]] = {}
    for job in truth.jobs:
        for request in job.accelerators:
            rate = estimate_steps_per_s(job, request)
            if rate is not None:
                alone.setdefault((request.accelerator, False), {})[job.name, request.count] = rate
    seen = estimated_table(
        alone,
        {},
        measured_share=measured_share,
        dice=np.random.default_rng([seed, _ESTIMATE]),
    ).alone
    jobs = []
    for job in truth.jobs:
        rates = {
            request.label: seen[request.accelerator, False][job.name, request.count]
            for request in job.accelerators
            if (job.name, request.count) in seen.get((request.accelerator, False), {})
        }
        jobs.append(replace(job, throughput_steps_per_s=MappingProxyType(rates)))
    return replace(truth, jobs=tuple(jobs))
