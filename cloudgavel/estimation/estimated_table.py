"""A table of throughputs as a scheduler knows it that has measured a part: for simulations."""

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from cloudgavel.estimation.column_model import ColumnModel
from cloudgavel.estimation.completed import CompletedMatrix, complete, drawn
from cloudgavel.estimation.gang_columns import GangColumn, column_of, prior_covariance, roofline
from cloudgavel.estimation.retained_share import (
    Alone,
    Beside,
    JobKind,
    PairMatrix,
    pair_matrices,
)

AloneCell = tuple[str, bool, JobKind]
"""(accelerator type, spread, kind)."""
PairCell = tuple[str, JobKind, JobKind]
"""(accelerator type, kind, the other kind); the order of the two does not matter."""


@dataclass(frozen=True, kw_only=True)
class EstimatedTable:
    """What policies may see of true throughputs: measured entries as they are, others estimated.

    Made by ``estimated_table``; immutable. ``alone`` and ``beside`` have the very keys of the truth
    and go into ``simulator.throughputs.ThroughputTable(alone=..., beside=...)``.
    """

    true_alone: Alone
    true_beside: Beside
    names: tuple[str, ...]
    columns: tuple[GangColumn, ...]
    rates: CompletedMatrix
    """(names, columns) log steps/s."""
    pairs: Mapping[int, PairMatrix]
    """By gang size."""

    @functools.cached_property
    def alone(self) -> Alone:
        """Steps/s of each gang alone: the median of what is believed.

        What the truth has as 0 (does not run there) stays 0: it is found out at the first start and
        costs no time. A kind of which nothing is measured is left out: unknown.
        """
        found: dict[tuple[str, bool], dict[JobKind, float]] = {}
        for (accelerator, spread), cells in self.true_alone.items():
            into = found.setdefault((accelerator, spread), {})
            for kind, rate in cells.items():
                cell = self._cell(accelerator, spread, kind)
                if cell is None or not np.isfinite(self.rates.truth[cell]):
                    into[kind] = min(rate, 0.0)
                elif self.rates.known[cell]:
                    into[kind] = rate
                elif np.isfinite(self.rates.sd[cell]):
                    into[kind] = math.exp(self.rates.mean[cell])
        return found

    @functools.cached_property
    def beside(self) -> Beside:
        """Steps/s beside another: rate alone as in ``alone`` times the share that is kept.

        A share is measured or estimated, at most 1. Pairs that do not run, have no rate alone or
        are of different gang sizes are 0: never formed.
        """
        found: dict[str, dict[tuple[JobKind, JobKind], float]] = {}
        for accelerator, cells in self.true_beside.items():
            own = self.alone.get((accelerator, False), {})
            into = found.setdefault(accelerator, {})
            for (kind, other), rate in cells.items():
                share = self._share(accelerator, kind, other)
                if share is None:
                    into[kind, other] = min(rate, 0.0)
                elif kind in own:
                    into[kind, other] = own[kind] * share
        return found

    def after_running(
        self, alone: Iterable[AloneCell] = (), pairs: Iterable[PairCell] = ()
    ) -> "EstimatedTable":
        """Return the table after jobs ran there: these entries are measured, others learn from it.

        Measured exactly; a pair is measured for both of its jobs. Entries that the truth does not
        have, or has as 0, are passed over. The same object comes back when nothing is new, so
        ``is`` tells whether policies must be asked again. Costs about a millisecond an entry, and
        50 ms each time that a tenth more is known.
        """
        cells = [
            cell for each in alone if (cell := self._cell(each[0], each[1], each[2])) is not None
        ]
        rates = self.rates.measured(cells)
        matrices = dict(self.pairs)
        for accelerator, kind, other in pairs:
            matrix = matrices.get(kind[1])
            if matrix is not None and other[1] == kind[1]:
                matrices[kind[1]] = matrix.measured(accelerator, kind[0], other[0])
        same = all(matrices[gang] is matrix for gang, matrix in self.pairs.items())
        if rates is self.rates and same:
            return self
        return replace(self, rates=rates, pairs=matrices)

    def _cell(self, accelerator: str, spread: bool, kind: JobKind) -> tuple[int, int] | None:
        column = column_of(accelerator, kind[1], spread=spread)
        if kind[0] not in self._row_of or column not in self._column_of:
            return None
        return self._row_of[kind[0]], self._column_of[column]

    @functools.cached_property
    def _row_of(self) -> Mapping[str, int]:
        return {name: at for at, name in enumerate(self.names)}

    @functools.cached_property
    def _column_of(self) -> Mapping[GangColumn, int]:
        return {column: at for at, column in enumerate(self.columns)}

    def _share(self, accelerator: str, kind: JobKind, other: JobKind) -> float | None:
        matrix = self.pairs.get(kind[1]) if kind[1] == other[1] else None
        return None if matrix is None else matrix.share(accelerator, kind[0], other[0])


def estimated_table(
    alone: Alone, beside: Beside, *, measured_share: float, dice: np.random.Generator
) -> EstimatedTable:
    """Hide a part of true throughputs and estimate it from the rest.

    ``alone`` and ``beside`` are the truth, as in ``simulator.throughputs.ThroughputTable``, in
    steps/s; 0 or missing = does not run there. Of the entries that run, ``measured_share`` (in
    [0, 1]) are measured. They are drawn by ``dice``, at first one for each name (gang sizes of one
    name are columns of one row), so the real part can be larger than asked for; of pairs the same
    part, both sides at once. From fresh dice of one seed a larger share measures the same entries
    and more, and 1 gives the truth back.

    Estimates come from what is measured in this table and from the accelerator catalogue (names as
    people spell them, ``v100``; about others nothing is assumed), not from reference profiles. Give
    ``.alone`` and ``.beside`` to policies at the start, then those of ``.after_running(...)`` as
    jobs run. Raises ``ValueError`` for a share outside [0, 1].
    """
    if not 0 <= measured_share <= 1:
        raise ValueError(f"the measured share is {measured_share:g}, not within [0, 1]")
    for_alone, for_pairs = dice.spawn(2)
    truth: dict[tuple[str, GangColumn], float] = {}
    for (accelerator, spread), cells in alone.items():
        for (name, gang), rate in cells.items():
            if rate > 0:
                truth.setdefault(
                    (name, column_of(accelerator, gang, spread=spread)), math.log(rate)
                )
    names = tuple(sorted({name for name, _ in truth}))
    columns = tuple(sorted({column for _, column in truth}))
    matrix = np.full((len(names), len(columns)), np.nan)
    row_of = {name: at for at, name in enumerate(names)}
    number = {column: at for at, column in enumerate(columns)}
    for (name, column), value in truth.items():
        matrix[row_of[name], number[column]] = value
    prior = ColumnModel(mean=roofline(columns), covariance=prior_covariance(columns))
    known = drawn(np.isfinite(matrix), measured_share, for_alone, one_in_each_row=True)
    return EstimatedTable(
        true_alone=alone,
        true_beside=beside,
        names=names,
        columns=columns,
        rates=complete(matrix, known, prior),
        pairs=pair_matrices(alone, beside, measured_share, for_pairs),
    )
