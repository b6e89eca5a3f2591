"""Value tables: the least expected cost to go, by backward induction over a dimensionless grid.

Time is counted in steps of the table, money in on-demand steps, so that one table serves every job
with the same price ratio, change-over and step, whatever its length and deadline. The state:

- the time left and the slack (time left less work left): waiting and change-overs cost slack,
  progress keeps it;
- whether spot is there, for how long it has (not) been, what is held, and the hidden regime;
- the allowance: how much may still be wasted above "the rest on on-demand" before the cap on risk
  forbids all but on-demand. Starts cost allowance, progress on spot earns it.

The guard is inside the model: with less slack than one change-over and one step, neither waiting
nor spot is allowed unless that step ends the job; likewise the cap.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cloudgavel.policies.spot.regimes import RegimeFamily, step_chain
from cloudgavel.policies.spot.view import Floats, Ints

SPOT_NONE, SPOT_HELD, SPOT_ON_DEMAND, GONE_NONE, GONE_ON_DEMAND = range(5)
"""The five kinds of state: is spot there, and what is held."""

Stored = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, slots=True)
class TableKey:
    """Everything a table depends on."""

    family: RegimeFamily
    price_ratio: float
    """Spot price per work over on-demand price."""
    changeover_steps: float
    step_s: float
    steps: int
    """Largest time left."""
    slack_steps: float
    """Largest slack."""
    switch_chance: float = 0.0
    """Chance per step that the machine held is lost while another offer is there: several zones."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ValueTable:
    """Cost to go in on-demand steps."""

    key: TableKey
    times: Floats
    """(N,) stored times left, in steps."""
    slacks: Floats
    """(S,) slack grid, in steps."""
    allowances: Floats
    """(L,) allowance grid, in change-overs; the last one is as good as any more."""
    values: Stored
    """(N, S, L, 5, A, K)"""

    @property
    def size_bytes(self) -> int:
        """Bytes in memory."""
        return self.values.nbytes

    def look_up(
        self, time_steps: Floats, slack_steps: Floats, allowance: Floats, kind: int
    ) -> Floats:
        """(J, A, K) values of a kind of state, trilinear, held at the ends of the grids.

        ``allowance`` is counted in change-overs.
        """
        time = _bracket(self.times, time_steps)
        slack = _bracket(self.slacks, slack_steps)
        room = _bracket(self.allowances, allowance)
        total: Floats | None = None
        for late in (0, 1):
            for wide in (0, 1):
                for rich in (0, 1):
                    weight = (
                        (time[1] if late else 1 - time[1])
                        * (slack[1] if wide else 1 - slack[1])
                        * (room[1] if rich else 1 - room[1])
                    )
                    corner = self.values[time[0] + late, slack[0] + wide, room[0] + rich, kind]
                    part = weight[:, None, None] * corner
                    total = part if total is None else total + part
        assert total is not None
        return total


ALLOWANCES = (0.0, 1.0, 2.0, 3.5, 7.0)
"""In change-overs; fine where one more start decides."""


def _bracket(grid: Floats, points: Floats) -> tuple[Ints, NDArray[np.float32]]:
    """Index of the grid point below each point and the share of the one above."""
    low = np.clip(np.searchsorted(grid, points, side="right") - 1, 0, len(grid) - 2)
    share = np.clip((points - grid[low]) / (grid[low + 1] - grid[low]), 0.0, 1.0)
    return low, share.astype(np.float32)


def slack_grid(largest: float, *, fine: int = 14, growth: float = 1.18) -> Floats:
    """Steps of one near the net, where a step decides, then growing by ``growth``."""
    grid = [float(i) for i in range(fine + 1)]
    step = 1.0
    while grid[-1] < largest:
        step *= growth
        grid.append(grid[-1] + step)
    return np.array(grid)


def time_grid(largest: int) -> Ints:
    """Every step near the end, then ever fewer: far from it values are nearly straight lines."""
    grid, step = [0, 1], 1
    while grid[-1] < largest:
        step = max(1, grid[-1] // 10)
        grid.append(grid[-1] + step)
    grid[-1] = max(largest, grid[-2] + 1)
    return np.array(grid)


def _shift_matrix(grid: Floats, by: float) -> NDArray[np.float32]:
    """(S, S) matrix that reads a function on the grid at ``grid - by`` (held at both ends)."""
    low, share = _bracket(grid, grid - by)
    matrix = np.zeros((len(grid), len(grid)), dtype=np.float32)
    rows = np.arange(len(grid))
    matrix[rows, low] += 1 - share
    matrix[rows, low + 1] += share
    return matrix


def _allowance_matrix(grid: Floats, by: float) -> NDArray[np.float32]:
    """The same for the allowance; the highest level stays: it stands for "more than enough"."""
    matrix = _shift_matrix(grid, by)
    matrix[-1] = 0.0
    matrix[-1, -1] = 1.0
    return matrix


def build_table(key: TableKey) -> ValueTable:
    """Backward induction; one to three milliseconds per step."""
    chain = step_chain(key.family, key.step_s)
    grid, times = slack_grid(key.slack_steps), time_grid(key.steps)
    capped = key.changeover_steps > 0
    levels = np.array(ALLOWANCES if capped else ALLOWANCES[-2:])
    changeover, price = key.changeover_steps, float(key.price_ratio)
    ages, regimes = key.family.ages, key.family.count
    shape = (len(grid), len(levels), ages, regimes)
    change = chain.change.astype(np.float32)
    age_on = chain.age_on.astype(np.float32)[:, None]
    mix = chain.mix.T.astype(np.float32)
    rerun = chain.rerun.astype(np.float32)
    huge, switch = np.float32(1e9), np.float32(key.switch_chance)

    def slack_read(by: float) -> NDArray[np.float32]:
        return _shift_matrix(grid, by)

    def allowance_read(by: float) -> NDArray[np.float32]:
        return _allowance_matrix(levels, by / changeover if capped else 0.0)

    def read(
        slack: NDArray[np.float32], room: NDArray[np.float32], array: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        size, count = array.shape[:2]
        moved = (slack @ array.reshape(size, -1)).reshape(array.shape)
        result: NDArray[np.float32] = np.matmul(room, moved.reshape(size, count, -1))
        return result.reshape(array.shape)

    whole = np.eye(len(grid), dtype=np.float32)
    even = np.eye(len(levels), dtype=np.float32)
    wait_slack, start_slack = slack_read(1.0), slack_read(changeover)
    lost_slack = slack_read(min(changeover, 1.0))
    earn, start_spot = allowance_read(price - 1.0), allowance_read(price - 1.0 + changeover)
    lost_spot = allowance_read(price - 1.0 + min(changeover, 1.0))
    start_on_demand = allowance_read(changeover)
    room = (levels * changeover if capped else np.full(len(levels), 1e9))[None, :, None, None]
    slack_left = grid[:, None, None, None]
    safe = slack_left >= changeover + 1.0 - 1e-6
    may_wait = safe & (room >= changeover - 1e-6)
    worst = max(1.0 - changeover, 0.0) - price * max(1.0, changeover) - changeover
    may_start_spot = safe & (room + worst >= -1e-6)
    may_keep_spot = safe & (room + 1.0 - price - changeover >= -1e-6)
    values = np.zeros((len(times), *shape[:2], 5, ages, regimes), dtype=np.float32)
    now = np.zeros((5, *shape), dtype=np.float32)
    position = 1

    def older(array: NDArray[np.float32]) -> NDArray[np.float32]:
        if ages == 1:
            return array
        result = array * (1 - age_on)
        result[..., :-1, :] += array[..., 1:, :] * age_on[:-1]
        result[..., -1, :] += array[..., -1, :] * age_on[-1]
        return result

    for step in range(1, int(times[-1]) + 1):
        stay = older(now)
        gone, back = change[1], change[0]
        lost = gone * (now[GONE_NONE][..., :1, :] @ rerun[0].T)
        lost_od = gone * (now[GONE_ON_DEMAND][..., :1, :] @ rerun[0].T)
        found = back * (now[SPOT_NONE][..., :1, :] @ rerun[1].T)
        found_od = back * (now[SPOT_ON_DEMAND][..., :1, :] @ rerun[1].T)
        held = stay[SPOT_HELD]
        if switch:
            held = (1 - switch) * held + switch * stay[SPOT_NONE]
        # The regime moves first, then the run ends or not: the filter's order.
        lost_up, held_up = lost @ mix, ((1 - gone) * held) @ mix
        idle_up = ((1 - gone) * stay[SPOT_NONE]) @ mix + lost_up
        od_up = ((1 - gone) * stay[SPOT_ON_DEMAND] + lost_od) @ mix
        idle_down = ((1 - back) * stay[GONE_NONE] + found) @ mix
        od_down = ((1 - back) * stay[GONE_ON_DEMAND] + found_od) @ mix
        work = (step - slack_left).astype(np.float32)
        run_cost = np.clip(work, 0.0, 1.0)
        start_cost = np.clip(work + np.float32(changeover), 0.0, 1.0)
        spot_keep = price * run_cost + read(whole, earn, held_up + lost_up)
        spot_start = (
            price * start_cost
            + read(start_slack, start_spot, held_up)
            + read(lost_slack, lost_spot, lost_up)
        )
        wait_up = np.where(may_wait, read(wait_slack, even, idle_up), huge)
        wait_down = np.where(may_wait, read(wait_slack, even, idle_down), huge)
        od_start_up = start_cost + read(start_slack, start_on_demand, od_up)
        od_start_down = start_cost + read(start_slack, start_on_demand, od_down)
        spot_start = np.where(may_start_spot, spot_start, huge)
        spot_keep = np.where(
            work <= 1.0, price * run_cost, np.where(may_keep_spot, spot_keep, huge)
        )
        idle = np.minimum(wait_up, spot_start)
        now = np.stack(
            [
                np.minimum(idle, od_start_up),
                np.minimum(np.minimum(wait_up, od_start_up), spot_keep),
                np.minimum(idle, run_cost + od_up),
                np.minimum(wait_down, od_start_down),
                np.minimum(wait_down, run_cost + od_down),
            ]
        ).astype(np.float32)
        now[:, (step - grid) <= 0] = 0.0
        if step == times[position]:
            values[position] = now.transpose(1, 2, 0, 3, 4)
            position += 1
    return ValueTable(
        key=key, times=times.astype(float), slacks=grid, allowances=levels, values=values
    )


class TableStore(Protocol):
    """Where tables outlive the process (``simulator.spot.table_files`` keeps them on disk)."""

    def load(self, key: TableKey) -> ValueTable | None:
        """Return the table of ``key`` or ``None``."""
        ...

    def save(self, table: ValueTable) -> None:
        """Keep ``table``; may do nothing."""
        ...


class TableShelf:
    """Tables built when first needed; the least recently used go when they outgrow the limit."""

    def __init__(self, *, limit_bytes: int = 256 * 2**20, store: TableStore | None = None) -> None:
        self._limit_bytes = limit_bytes
        self._store = store
        self._tables: OrderedDict[TableKey, ValueTable] = OrderedDict()

    def table(self, key: TableKey) -> ValueTable:
        """Return the table of ``key``, loaded or built if need be."""
        if key in self._tables:
            self._tables.move_to_end(key)
            return self._tables[key]
        table = None if self._store is None else self._store.load(key)
        if table is None:
            table = build_table(key)
            if self._store is not None:
                self._store.save(table)
        self._tables[key] = table
        while len(self._tables) > 1 and self.size_bytes > self._limit_bytes:
            self._tables.popitem(last=False)
        return table

    @property
    def size_bytes(self) -> int:
        """Bytes of all tables held."""
        return sum(table.size_bytes for table in self._tables.values())
