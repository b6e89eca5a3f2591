"""Reference profiles: steps/s of well-known training jobs, measured by others. A job may name one.

Source: the throughputs published with Narayanan et al., "Heterogeneity-Aware Cluster Scheduling
Policies for Deep Learning Workloads", OSDI 2020 (artifact of the paper, simulation throughputs):
PyTorch training on NVIDIA V100, P100 and K80, gangs consolidated, rounded here to three digits.
A name is the workload and its batch size; ``-`` was not measured, or did not run there.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from cloudgavel.jobs.mistakes import did_you_mean
from cloudgavel.jobs.quantities import QuantityError

_LABELS: Final = tuple(
    name if count == 1 else f"{name}:{count}"
    for name in ("V100", "P100", "K80")
    for count in (1, 2, 4, 8)
)
_TABLE: Final = """
resnet18/bs16         32.4   100   124   383  35.9  60.9  94.3   130   4.8  8.76  16.1  26.9
resnet18/bs32         29.9  94.2   115   340  35.8  57.5    97   142  7.18  13.2  22.5  43.9
resnet18/bs64         24.1  74.1  95.6   256  22.3  41.5    75   120  7.05  12.5  21.6  42.6
resnet18/bs128          18    24    70   162  11.7  24.2  45.4  85.1  1.81  3.63  6.98  13.7
resnet18/bs256        10.3  15.9  27.8  81.5  7.72  14.2  27.7    54 0.886  1.67  3.41  6.98
resnet50/bs16         11.4  13.9  23.2  27.8  9.05  16.2  30.8  44.8   2.3   4.3   7.7  15.1
resnet50/bs32         7.79  10.8  13.8  24.1  4.89  9.75  18.5  33.6  1.24  2.35  4.38  8.79
resnet50/bs64         4.39  7.92  9.45  17.3  2.62  5.52  10.4  18.2 0.619  1.26  2.41  4.57
resnet50/bs128         2.5  4.22  7.03  10.3  1.58  2.88  5.19  9.93 0.347     -     -     -
transformer/bs16      11.1  14.2  20.1  71.7  9.54  14.3  21.2    29  5.47  7.05  10.3  18.6
transformer/bs32      10.6  13.3  22.8    64  7.87  11.2  18.2  26.2  3.51   5.1  7.98  13.9
transformer/bs64      8.62  15.9  19.7  49.7  5.09  7.89  13.3  19.9  1.75  3.06  5.03  8.98
transformer/bs128     5.45  10.1  14.2  30.9  3.07  5.09  8.77  13.7 0.982  1.66  2.87  5.26
transformer/bs256      1.6  2.89  4.76  9.72  1.68  2.94  5.24  9.25 0.458 0.849  1.51  2.92
a3c                   7.18     -     -     -  5.68     -     -     -  3.44     -     -     -
lm/bs5                 109   186   127   699  90.8  76.9   110   134  25.5  32.4  44.1  76.9
lm/bs10               81.7   163   121   615  77.1  72.5   105   128  23.8    30    43  75.6
lm/bs20               64.7   132   111   497  58.2  62.3  93.8   117  17.1  23.8  35.7  61.4
lm/bs40               45.2  91.6    96   359  35.8    48  76.1   102  11.5  16.1    23  43.1
lm/bs80               28.2  58.1  74.8   231  21.2  31.8    55  82.9  6.05    10  16.4  28.3
recommendation/bs512  23.3     -     -     -  48.9     -     -     -  32.9     -     -     -
recommendation/bs1024 13.3     -     -     -  30.7     -     -     -    20     -     -     -
recommendation/bs2048 7.47     -     -     -  16.6     -     -     -  10.4     -     -     -
recommendation/bs4096 3.91     -     -     -   8.9     -     -     -   5.3     -     -     -
recommendation/bs8192 2.84     -     -     -  5.55     -     -     -   2.7     -     -     -
cyclegan              4.43     -     -     -   2.4     -     -     - 0.505     -     -     -
"""


def _read(row: str) -> tuple[str, Mapping[str, float]]:
    name, *cells = row.split()
    pairs = zip(_LABELS, cells, strict=True)
    return name, MappingProxyType({each: float(cell) for each, cell in pairs if cell != "-"})


PROFILES: Final[Mapping[str, Mapping[str, float]]] = MappingProxyType(
    dict(_read(row) for row in _TABLE.strip().splitlines())
)
"""Steps/s of the whole gang by name of the profile and ``AcceleratorRequest.label``."""


def read_profile(text: str) -> str:
    """Name of a profile, in any case, as a scalar reader (``QuantityError``)."""
    name = text.strip().lower()
    if name not in PROFILES:
        near = did_you_mean(name, PROFILES)
        known = near or "; known are " + ", ".join(PROFILES)
        raise QuantityError(f"unknown profile `{text.strip()}`{known}")
    return name
