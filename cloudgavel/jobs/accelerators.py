"""Accelerators a job may ask for: memory, peak rates and bandwidth, each with its source.

The names are the canonical ones of offers, throughput tables and ``jobs.yaml``. Figures are the
vendors' own and dense (without structured sparsity). Vendors write memory as GB and build it in
binary units; ``memory_gib`` is that nominal figure, of which drivers take a few hundred MiB.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from cloudgavel.errors import UsageError


class AcceleratorKind(StrEnum):
    """Which command of a job runs on it: ``gpu``, ``tpu``, or only ``any``."""

    GPU = "gpu"
    TPU = "tpu"
    OTHER = "other"


@dataclass(frozen=True, kw_only=True, slots=True)
class Accelerator:
    """One GPU, one accelerator chip, or one TPU slice (an indivisible unit of several chips).

    Rates are per chip, in TFLOP/s and GB/s, and ``None`` where the vendor publishes none.
    """

    name: str
    kind: AcceleratorKind
    memory_gib: float
    """Memory of one GPU or, in a slice, of one chip."""
    fp32_tflops: float | None
    half_tflops: float | None
    """FP16 or BF16, on tensor or matrix units where there are any."""
    bandwidth_gb_per_s: float
    chips: int = 1
    """Chips of a slice; 1 for everything else."""
    source: str

    @property
    def is_slice(self) -> bool:
        """True for a TPU slice: rented whole, its gang is always 1."""
        return self.kind is AcceleratorKind.TPU

    @property
    def peak_tflops(self) -> float:
        """The fastest published training rate of one chip (half precision before FP32)."""
        rates = [rate for rate in (self.half_tflops, self.fp32_tflops) if rate is not None]
        return max(rates)


def _gpu(
    name: str,
    memory_gib: float,
    fp32_tflops: float,
    half_tflops: float | None,
    bandwidth_gb_per_s: float,
    source: str,
) -> Accelerator:
    return Accelerator(
        name=name,
        kind=AcceleratorKind.GPU,
        memory_gib=memory_gib,
        fp32_tflops=fp32_tflops,
        half_tflops=half_tflops,
        bandwidth_gb_per_s=bandwidth_gb_per_s,
        source=source,
    )


_GPUS: Final = (
    # A K80 board holds two GPUs; clouds rent and count each of them.
    _gpu("K80", 12, 4.37, None, 240, "NVIDIA Tesla K80 data sheet, half of the board"),
    _gpu("P100", 16, 9.3, 18.7, 732, "NVIDIA Tesla P100 PCIe data sheet"),
    _gpu("P4", 8, 5.5, None, 192, "NVIDIA Tesla P4 data sheet"),
    _gpu("V100", 16, 15.7, 125, 900, "NVIDIA Tesla V100 SXM2 data sheet"),
    _gpu("V100-32GB", 32, 15.7, 125, 900, "NVIDIA Tesla V100 SXM2 data sheet"),
    _gpu("T4", 16, 8.1, 65, 320, "NVIDIA T4 product brief"),
    _gpu("A10G", 24, 35, 70, 600, "NVIDIA A10G data sheet"),
    _gpu("L4", 24, 30.3, 121, 300, "NVIDIA L4 data sheet, sparse figures halved"),
    _gpu("L40S", 48, 91.6, 362, 864, "NVIDIA L40S data sheet"),
    _gpu("A100", 40, 19.5, 312, 1555, "NVIDIA A100 SXM4 40GB data sheet"),
    _gpu("A100-80GB", 80, 19.5, 312, 2039, "NVIDIA A100 SXM4 80GB data sheet"),
    _gpu("H100", 80, 67, 989, 3350, "NVIDIA H100 SXM data sheet, sparse figures halved"),
    _gpu("H200", 141, 67, 989, 4800, "NVIDIA H200 SXM data sheet, sparse figures halved"),
    _gpu("B200", 180, 75, 2250, 7700, "NVIDIA HGX B200 data sheet, an eighth, sparse halved"),
)

_TRAINIUM: Final = Accelerator(
    name="Trainium",
    kind=AcceleratorKind.OTHER,
    memory_gib=32,
    fp32_tflops=47.5,
    half_tflops=190,
    bandwidth_gb_per_s=820,
    source="AWS Neuron documentation, Trn1 architecture",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class _TpuFamily:
    """One TPU generation: per-chip figures, and its slices as (number in the name, chips)."""

    name: str
    memory_gib: float
    half_tflops: float
    bandwidth_gb_per_s: float
    slices: tuple[tuple[int, int], ...]
    source: str


_CACM_2020: Final = (
    "Jouppi et al., A Domain-Specific Supercomputer for Training Deep Neural Networks, "
    "CACM 63(7), 2020, table 3"
)

# Names count TensorCores (two per chip) up to v4 and for v5p, and chips for v5e and v6e.
_TPU_FAMILIES: Final = (
    _TpuFamily(
        name="v2",
        memory_gib=16,
        half_tflops=46,
        bandwidth_gb_per_s=700,
        slices=((8, 4), (32, 16)),
        source=_CACM_2020,
    ),
    _TpuFamily(
        name="v3",
        memory_gib=32,
        half_tflops=123,
        bandwidth_gb_per_s=900,
        slices=((8, 4), (32, 16)),
        source=_CACM_2020,
    ),
    _TpuFamily(
        name="v4",
        memory_gib=32,
        half_tflops=275,
        bandwidth_gb_per_s=1228,
        slices=((8, 4), (16, 8), (32, 16)),
        source="Google Cloud TPU documentation, TPU v4",
    ),
    _TpuFamily(
        name="v5litepod",
        memory_gib=16,
        half_tflops=197,
        bandwidth_gb_per_s=819,
        slices=((1, 1), (4, 4), (8, 8), (16, 16)),
        source="Google Cloud TPU documentation, TPU v5e",
    ),
    _TpuFamily(
        name="v5p",
        memory_gib=95,
        half_tflops=459,
        bandwidth_gb_per_s=2765,
        slices=((8, 4),),
        source="Google Cloud TPU documentation, TPU v5p",
    ),
    _TpuFamily(
        name="v6e",
        memory_gib=32,
        half_tflops=918,
        bandwidth_gb_per_s=1640,
        slices=((1, 1), (4, 4), (8, 8), (16, 16)),
        source="Google Cloud TPU documentation, TPU v6e",
    ),
)

_SLICES: Final = tuple(
    Accelerator(
        name=f"tpu-{family.name}-{number}",
        kind=AcceleratorKind.TPU,
        memory_gib=family.memory_gib,
        fp32_tflops=None,
        half_tflops=family.half_tflops,
        bandwidth_gb_per_s=family.bandwidth_gb_per_s,
        chips=chips,
        source=family.source,
    )
    for family in _TPU_FAMILIES
    for number, chips in family.slices
)

CATALOGUE: Final[Mapping[str, Accelerator]] = MappingProxyType(
    {accelerator.name: accelerator for accelerator in (*_GPUS, _TRAINIUM, *_SLICES)}
)
"""Every accelerator by its canonical name."""


class UnknownAcceleratorError(UsageError):
    """A name that is no accelerator; ``suggestions`` are the nearest canonical names."""

    def __init__(self, name: str, suggestions: tuple[str, ...]) -> None:
        self.name = name
        self.suggestions = suggestions
        if suggestions:
            hint = "did you mean " + " or ".join(f"`{each}`" for each in suggestions) + "?"
        else:
            hint = "known are " + ", ".join(CATALOGUE)
        super().__init__(f"unknown accelerator `{name}`", hints=(hint,))


_DROPPED_TEXT: Final = """
nvidia tesla aws gcp google cloud gpu pcie pci gddr6
sxm sxm2 sxm3 sxm4 sxm5 hbm2 hbm2e hbm3 hbm3e
"""
_DROPPED_WORDS: Final = frozenset(_DROPPED_TEXT.split())
"""Makers and form factors: they do not tell one canonical name from another."""
_OTHER_NAMES: Final = MappingProxyType({"trn1": "Trainium", "trainium1": "Trainium"})
_MEMORY_WORD: Final = re.compile(r"([0-9]+)(?:g|gb|gib)?")
_TPU_NAME: Final = re.compile(
    r"(?:cloud-)?(?:tpu-?)?(v2|v3|v4|v5e|v5lite|v5litepod|v5p|v6e|trillium)(?:-([0-9]{1,5}))?"
)
_TPU_FAMILY_OF: Final = MappingProxyType(
    {"v5e": "v5litepod", "v5lite": "v5litepod", "trillium": "v6e"}
)
_MODELS: Final = MappingProxyType(
    {
        accelerator.name.lower(): accelerator
        for accelerator in (*_GPUS, _TRAINIUM)
        if "-" not in accelerator.name
    }
)


def canonical(name: str) -> str:
    """Return the canonical name of an accelerator as people spell it.

    Case, the vendor's name, form factor and memory may vary: ``nvidia-tesla-v100``,
    ``a100-40gb``, ``A100-SXM4-80GB``, ``v3-8``, ``tpu-v5e-8``. Raises
    ``UnknownAcceleratorError`` with the nearest names otherwise.
    """
    spelt = re.sub(r"[\s_/]+", "-", name.strip().lower())
    tpu = _TPU_NAME.fullmatch(spelt)
    if tpu is not None:
        family = _TPU_FAMILY_OF.get(tpu[1], tpu[1])
        found = f"tpu-{family}-{tpu[2]}"
        if found in CATALOGUE:
            return found
        raise UnknownAcceleratorError(
            name, tuple(each for each in CATALOGUE if each.startswith(f"tpu-{family}-"))
        )
    words = [word for word in spelt.split("-") if word and word not in _DROPPED_WORDS]
    if words:
        words[0] = _OTHER_NAMES.get(words[0], words[0]).lower()
    if words and words[0] in _MODELS and len(words) <= 2:
        model = _MODELS[words[0]]
        if len(words) == 1:
            return model.name
        memory = _MEMORY_WORD.fullmatch(words[1])
        if memory is not None:
            if int(memory[1]) == model.memory_gib:
                return model.name
            larger = f"{model.name}-{memory[1]}GB"
            if larger in CATALOGUE:
                return larger
    raise UnknownAcceleratorError(name, _nearest(spelt, words))


def _nearest(spelt: str, words: list[str]) -> tuple[str, ...]:
    """Up to three canonical names near a misspelt one, the nearest first."""
    tries = {spelt, "-".join(words), f"tpu-{spelt}", *words[:1]}
    likeness = {
        name: max(difflib.SequenceMatcher(None, each, name.lower()).ratio() for each in tries)
        for name in CATALOGUE
    }
    best = max(likeness.values())
    near = [name for name in likeness if likeness[name] >= max(0.6, best - 0.05)]
    return tuple(sorted(near, key=lambda name: -likeness[name])[:3])


def accelerator(name: str) -> Accelerator:
    """Look up an accelerator by any accepted spelling (``UnknownAcceleratorError`` otherwise)."""
    known = CATALOGUE.get(name)
    return known if known is not None else CATALOGUE[canonical(name)]
