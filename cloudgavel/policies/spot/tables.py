"""Value tables: the least expected cost to go, by backward induction over a dimensionless grid.

Time is counted in steps of the table, money in on-demand steps, so that one table serves every job
with the same price ratio, change-over and step, whatever its length and deadline. The state:

- the time left and the slack (time left less work left): waiting and change-overs cost slack,
  progress keeps it;
- whether spot is there, for how long it has (not) been, what is held, and the hidden regime;
- the allowance: how much may still be wasted above "the rest on on-demand" before the cap on risk
  forbids all but on-demand. Starts cost allowance, progress on spot earns it.

The guard is inside the model: without the slack for one change-over after a bad step (the whole
step lost where spot may vanish within it) neither waiting nor spot is allowed, unless that step
ends the job; likewise the cap.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cloudgavel.policies.spot.regimes import RegimeFamily, StepChain, step_chain
from cloudgavel.policies.spot.view import Floats, Ints

SPOT_NONE, SPOT_HELD, SPOT_ON_DEMAND, GONE_NONE, GONE_ON_DEMAND = range(5)
"""The five kinds of state: is spot there, and what is held."""

Stored = NDArray[np.float32]
_ROUNDING = 1e-6


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
    holds_for_step: bool = False
    """Spot that is there when a step begins stays to its end; else it may vanish within."""
    lost_steps: float = 0.0
    """Unsaved work that goes with a machine that is lost, on average, in steps of on-demand."""
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
    """(N, 5, L, S, A, K)"""

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
        rooms = ((room[0], 1 - room[1]), (room[0] + 1, room[1]))
        slacks = ((slack[0], 1 - slack[1]), (slack[0] + 1, slack[1]))
        total: Floats | None = None
        for at_time, time_share in ((time[0], 1 - time[1]), (time[0] + 1, time[1])):
            for at_slack, slack_share in slacks:
                share = time_share * slack_share
                for at_room, room_share in rooms:
                    corner = self.values[at_time, kind, at_room, at_slack]
                    part = (share * room_share)[:, None, None] * corner
                    total = part if total is None else total + part
        assert total is not None
        return total


ALLOWANCES = (0.0, 1.0, 2.0, 3.5, 7.0)
"""In change-overs; fine where one more start decides."""


def _bracket(grid: Floats, points: Floats) -> tuple[Ints, NDArray[np.float32]]:
    """Index of the grid point below each point and the share of the one above."""
    # Of a few points at a time, and often: ``np.clip`` would take longer than all the rest.
    low = np.searchsorted(grid, points, side="right") - 1
    low = np.minimum(np.maximum(low, 0), len(grid) - 2)
    below = grid[low]
    share = (points - below) / (grid[low + 1] - below)
    return low, np.minimum(np.maximum(share, 0.0), 1.0).astype(np.float32)


def slack_grid(largest: float, *, fine: int = 8, growth: float = 1.3) -> Floats:
    """Steps of one near the net, where values bend, then growing by ``growth``."""
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


def _shift_matrix(grid: Floats, by: float) -> Stored:
    """(S, S) matrix that reads a function on the grid at ``grid - by`` (held at both ends)."""
    low, share = _bracket(grid, grid - by)
    matrix = np.zeros((len(grid), len(grid)), dtype=np.float32)
    rows = np.arange(len(grid))
    matrix[rows, low] += 1 - share
    matrix[rows, low + 1] += share
    return matrix


def _allowance_matrix(grid: Floats, by: float) -> Stored:
    """The same for the allowance; the highest level stays: it stands for "more than enough"."""
    matrix = _shift_matrix(grid, by)
    matrix[-1] = 0.0
    matrix[-1, -1] = 1.0
    return matrix


def _expectations(chain: StepChain) -> tuple[Stored, Stored]:
    """What a step does to a run without spot [0] and with [1], as matrices on values.

    Returns (2, A K, A K): from the values of runs that go on to their expectation before the step;
    and (2, K, A K): the same from the values of the runs that begin. The regime moves first, then
    the run ends or not: the filter's order.
    """
    ages, regimes = chain.change.shape[1:]
    go_on = np.zeros((2, ages, regimes, ages, regimes))
    begin = np.zeros((2, regimes, ages, regimes))
    for kind in (0, 1):
        for age in range(ages):
            ends = chain.change[kind, age]
            stays, moves = (1 - chain.age_on[age]), chain.age_on[age]
            # [after, before]: chance that a regime becomes another and the run goes on or ends.
            kept = chain.mix.T * (1 - ends)[:, None]
            ended = chain.rerun[1 - kind].T @ (chain.mix.T * ends[:, None])
            go_on[kind, age, :, age, :] += stays * kept
            go_on[kind, min(age + 1, ages - 1), :, age, :] += moves * kept
            begin[kind, :, age, :] += ended
    size = ages * regimes
    return (
        go_on.reshape(2, size, size).astype(np.float32),
        begin.reshape(2, regimes, size).astype(np.float32),
    )


def build_table(key: TableKey) -> ValueTable:
    """Backward induction; about a third of a millisecond per step."""
    grid, times = slack_grid(key.slack_steps), time_grid(key.steps)
    changeover, price, switch = key.changeover_steps, key.price_ratio, key.switch_chance
    capped = changeover > 0
    levels = np.array(ALLOWANCES if capped else ALLOWANCES[-2:])
    regimes, size = key.family.count, key.family.ages * key.family.count
    go_on, begin = _expectations(step_chain(key.family, key.step_s))

    def spend(by: float) -> Stored:
        return _allowance_matrix(levels, by / changeover if capped else 0.0)

    def read(array: Stored, room: Stored) -> Stored:
        flat = room @ array.reshape(len(levels), -1)
        result: Stored = flat.reshape(array.shape)
        return result

    pending = min(changeover, 1.0)
    """Of a start's step, the part without progress."""
    wait_slack, start_slack = _shift_matrix(grid, 1.0), _shift_matrix(grid, changeover)
    lost_fresh = pending + min(key.lost_steps, 1.0 - pending)
    keep_lost_slack, start_lost_slack = (
        _shift_matrix(grid, by) for by in (key.lost_steps, lost_fresh)
    )
    earn, start_spot = spend(price - 1.0), spend(price - 1.0 + changeover)
    keep_lost, start_lost = spend(price - 1.0 + key.lost_steps), spend(price - 1.0 + lost_fresh)
    start_on_demand = spend(changeover)
    room = levels[:, None, None] * changeover if capped else np.full((len(levels), 1, 1), 1e9)
    slack = grid[None, :, None]
    vanishes = 0.0 if key.holds_for_step else 1.0
    reserve = changeover + 2 * key.lost_steps - _ROUNDING
    """The guards count with all of a save interval, twice what is lost on average."""
    wait_room = room - changeover
    start_room = wait_room + max(1.0 - changeover, 0.0) - price * max(1.0, changeover)
    keep_room = wait_room + 1.0 - price - 2 * key.lost_steps
    can_wait = (slack >= reserve + 1.0) & (wait_room >= -_ROUNDING)
    can_start = (slack >= reserve + max(pending, vanishes)) & (start_room >= -_ROUNDING)
    can_keep = (slack >= reserve + vanishes) & (keep_room >= -_ROUNDING)
    no_wait, no_start, no_keep = (
        np.where(allowed, 0.0, 1e9).astype(np.float32)
        for allowed in (can_wait, can_start, can_keep)
    )
    shape = (len(levels), len(grid), size)
    values = np.zeros((len(times), 5, *shape), dtype=np.float32)
    now = np.zeros((5, *shape), dtype=np.float32)
    position = 1
    for step in range(1, int(times[-1]) + 1):
        up, down = now[:3] @ go_on[1], now[3:] @ go_on[0]
        lost = now[3:, ..., :regimes] @ begin[1]
        found = now[[SPOT_NONE, SPOT_ON_DEMAND], ..., :regimes] @ begin[0]
        idle_up, on_demand_up = up[SPOT_NONE] + lost[0], up[SPOT_ON_DEMAND] + lost[1]
        idle_down, on_demand_down = down + found
        held = up[SPOT_HELD]
        if switch:
            held = np.float32(1 - switch) * held + np.float32(switch) * up[SPOT_NONE]
        work = (step - grid).astype(np.float32)[:, None]
        run_cost = np.clip(work, 0.0, 1.0)
        start_cost = np.clip(work + np.float32(changeover), 0.0, 1.0)
        gone = read(keep_lost_slack @ lost[0], keep_lost) if key.lost_steps else read(lost[0], earn)
        spot_keep = read(held, earn) + gone + np.float32(price) * run_cost + no_keep
        # A machine that ends the job within the step is safe.
        spot_keep = np.where(work <= 1.0, np.float32(price) * run_cost, spot_keep)
        gone = read(start_lost_slack @ lost[0], start_lost)
        spot_start = read(start_slack @ held, start_spot) + gone
        spot_start += np.float32(price) * start_cost + no_start
        wait_up = wait_slack @ idle_up + no_wait
        wait_down = wait_slack @ idle_down + no_wait
        start_up = read(start_slack @ on_demand_up, start_on_demand) + start_cost
        start_down = read(start_slack @ on_demand_down, start_on_demand) + start_cost
        idle = np.minimum(wait_up, spot_start)
        np.minimum(idle, start_up, out=now[SPOT_NONE])
        np.minimum(np.minimum(wait_up, start_up), spot_keep, out=now[SPOT_HELD])
        np.minimum(idle, run_cost + on_demand_up, out=now[SPOT_ON_DEMAND])
        np.minimum(wait_down, start_down, out=now[GONE_NONE])
        np.minimum(wait_down, run_cost + on_demand_down, out=now[GONE_ON_DEMAND])
        now[:, :, step - grid <= 0] = 0.0
        if step == times[position]:
            values[position] = now
            position += 1
    return ValueTable(
        key=key,
        times=times.astype(float),
        slacks=grid,
        allowances=levels,
        values=values.reshape(*values.shape[:-1], key.family.ages, regimes),
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
