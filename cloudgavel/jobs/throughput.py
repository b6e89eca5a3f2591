"""Rules of thumb about gangs that need no measurement."""

import math
from typing import Final

from cloudgavel.jobs.accelerators import accelerator
from cloudgavel.jobs.spec import AcceleratorRequest, JobSpec

DOUBLING_EFFICIENCY: Final = 0.9
"""Share of the ideal speed that is kept each time a gang doubles."""


def gang_speedup(chips: int) -> float:
    """Speed of ``chips`` equal chips in units of one: ``chips * 0.9 ** log2(chips)``.

    A rule of thumb for data-parallel training with fast links; 8 chips count as 5.8.
    """
    return chips * math.pow(DOUBLING_EFFICIENCY, math.log2(chips))


def memory_fits(spec: JobSpec, request: AcceleratorRequest) -> bool:
    """Whether one accelerator (one chip of a slice) has the memory that the job asks for.

    A job that declares no memory fits everywhere until it is learnt otherwise.
    """
    return spec.memory_gib is None or spec.memory_gib <= accelerator(request.accelerator).memory_gib
