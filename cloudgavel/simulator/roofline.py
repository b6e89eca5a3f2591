"""Throughputs where nobody measured any: kinds of jobs between bound by memory and by arithmetic.

In the manner of a roofline (Williams, Waterman and Patterson, CACM 52(4), 2009): a kind with
arithmetic share ``a`` does on accelerator r, in units of its speed on a V100,

    (peak_r / peak_V100) ** a * (bandwidth_r / bandwidth_V100) ** (1 - a)

with the vendors' figures of ``jobs.accelerators``, and on a gang ``jobs.throughput.gang_speedup``
times that. Assumed, not measured: it spreads the kinds as widely as real ones are spread, no more.
"""

from collections.abc import Sequence

from cloudgavel.jobs.accelerators import accelerator
from cloudgavel.jobs.throughput import gang_speedup
from cloudgavel.simulator.throughputs import JobKind, ThroughputTable

REFERENCE = "V100"
ACCELERATORS = ("T4", "L4", "A10G", "V100", "A100", "H100")
"""Rented from more than one cloud, in more than one size."""
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
GANGS = tuple(range(1, 65))


def roofline_kinds() -> tuple[str, ...]:
    """Names of the kinds, from bound by memory to bound by arithmetic."""
    return tuple(f"arithmetic-{100 * share:.0f}%" for share in SHARES)


def roofline_table(
    accelerators: Sequence[str] = ACCELERATORS, gangs: Sequence[int] = GANGS
) -> ThroughputTable:
    """Return steps/s of every kind; one V100 does one step a second.

    Names are kept as they are spelt. ``UnknownAcceleratorError`` for one without figures.
    """
    here = accelerator(REFERENCE)
    alone: dict[tuple[str, bool], dict[JobKind, float]] = {}
    for name in accelerators:
        there = accelerator(name)
        own = alone.setdefault((name, False), {})
        for kind, share in zip(roofline_kinds(), SHARES, strict=True):
            speed = (there.peak_tflops / here.peak_tflops) ** share
            speed *= (there.bandwidth_gb_per_s / here.bandwidth_gb_per_s) ** (1 - share)
            for gang in gangs:
                own[kind, gang] = speed * gang_speedup(gang * there.chips)
    return ThroughputTable(alone=alone, beside={})
