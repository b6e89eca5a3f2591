"""Steps per second of a job on a gang: what was given, and an estimate where nothing was."""

import math
from typing import Final

from cloudgavel.jobs.accelerators import accelerator
from cloudgavel.jobs.spec import AcceleratorRequest, JobSpec

DOUBLING_EFFICIENCY: Final = 0.9
"""Share of the ideal speed that is kept each time a gang doubles."""


def steps_per_s(spec: JobSpec, request: AcceleratorRequest) -> float | None:
    """Steps/s of the whole gang as given in the job; ``None`` if unknown, never 0."""
    return spec.throughput_steps_per_s.get(request.label)


def gang_speedup(chips: int) -> float:
    """Speed of ``chips`` equal chips in units of one: ``chips * 0.9 ** log2(chips)``.

    A rule of thumb for data-parallel training with fast links; 8 chips count as 5.8.
    """
    return chips * math.pow(DOUBLING_EFFICIENCY, math.log2(chips))


def estimate_steps_per_s(spec: JobSpec, request: AcceleratorRequest) -> float | None:
    """Estimate steps/s of a gang that was not given; an estimate promises no deadline.

    From each known gang g of the same job, in the manner of a roofline (Williams, Waterman and
    Patterson, CACM 52(4), 2009): a job bound by arithmetic scales with the peak rate, one bound by
    memory with the bandwidth, and as it is not known which, the estimate takes the geometric mean

        steps/s(r) = steps/s(g) * sqrt(peak_r / peak_g * bandwidth_r / bandwidth_g)
                     * speedup(chips_r) / speedup(chips_g)

    with ``gang_speedup``. Known gangs of the same accelerator, if any, are the only ones used;
    several are combined by their geometric mean. A given value is returned unchanged; ``None``
    when the job has no known gang or the model does not fit in the memory.
    """
    given = steps_per_s(spec, request)
    if given is not None:
        return given
    if not memory_fits(spec, request):
        return None
    known = [
        (each, spec.throughput_steps_per_s[each.label])
        for each in spec.accelerators
        if each.label in spec.throughput_steps_per_s
    ]
    same = [pair for pair in known if pair[0].accelerator == request.accelerator]
    used = same or known
    if not used:
        return None
    logarithms = [math.log(speed * _ratio(request, each)) for each, speed in used]
    return math.exp(sum(logarithms) / len(logarithms))


def memory_fits(spec: JobSpec, request: AcceleratorRequest) -> bool:
    """Whether one accelerator (one chip of a slice) has the memory that the job asks for.

    A job that declares no memory fits everywhere until it is learnt otherwise.
    """
    return spec.memory_gib is None or spec.memory_gib <= accelerator(request.accelerator).memory_gib


def _ratio(wanted: AcceleratorRequest, known: AcceleratorRequest) -> float:
    """Speed of one gang in units of another."""
    there, here = accelerator(wanted.accelerator), accelerator(known.accelerator)
    per_chip = math.sqrt(
        there.peak_tflops / here.peak_tflops * there.bandwidth_gb_per_s / here.bandwidth_gb_per_s
    )
    speedup = gang_speedup(wanted.count * there.chips) / gang_speedup(known.count * here.chips)
    return per_chip * speedup
