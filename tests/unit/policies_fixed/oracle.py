"""The same problems as raw matrices for ``scipy.optimize``: knows nothing of the package."""

import numpy as np
from scipy.optimize import linprog


def constraints(
    rates: np.ndarray,
    gangs: np.ndarray,
    type_of_pool: np.ndarray,
    accelerators: np.ndarray,
    pairs: list[tuple[int, int, int, float, float]],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Throughput matrix (m, C), rows A, sides b: job time at most 1, types at most their size.

    Columns: job-major singles (a rate of 0 makes the column useless, not absent), then pairs
    (job, job, pool, rate, rate).
    """
    m, width = rates.shape
    count = m * width + len(pairs)
    throughput = np.zeros((m, count))
    time = np.zeros((m, count))
    use = np.zeros((len(accelerators), count))
    for j in range(m):
        for r in range(width):
            throughput[j, j * width + r] = rates[j, r]
            time[j, j * width + r] = 1
            use[type_of_pool[r], j * width + r] = gangs[r]
    for number, (one, other, r, rate_one, rate_other) in enumerate(pairs):
        at = m * width + number
        throughput[one, at] = rate_one
        throughput[other, at] = rate_other
        time[one, at] = time[other, at] = 1
        use[type_of_pool[r], at] = gangs[r]
    sides = np.concatenate([np.ones(m), accelerators])
    return throughput, np.vstack([time, use]), sides


def best_level(
    rates: np.ndarray,
    accelerators: np.ndarray,
    demand: np.ndarray,
    *,
    gangs: np.ndarray | None = None,
    type_of_pool: np.ndarray | None = None,
    pairs: list[tuple[int, int, int, float, float]] | None = None,
) -> float:
    """``max z`` with ``thr_j >= demand_j z``."""
    m, width = rates.shape
    throughput, rows, sides = constraints(
        rates,
        np.ones(width) if gangs is None else gangs,
        np.arange(width) if type_of_pool is None else type_of_pool,
        accelerators,
        pairs or [],
    )
    count = throughput.shape[1]
    cost = np.zeros(count + 1)
    cost[-1] = -1
    upper = np.vstack(
        [
            np.hstack([rows, np.zeros((rows.shape[0], 1))]),
            np.hstack([-throughput, demand[:, None]]),
        ]
    )
    found = linprog(cost, A_ub=upper, b_ub=np.concatenate([sides, np.zeros(m)]), method="highs")
    assert found.status == 0, found.message
    return float(-found.fun)


def best_sum(rates: np.ndarray, accelerators: np.ndarray, gain: np.ndarray) -> float:
    """``max sum gain_j thr_j``."""
    width = rates.shape[1]
    throughput, rows, sides = constraints(rates, np.ones(width), np.arange(width), accelerators, [])
    found = linprog(-(gain @ throughput), A_ub=rows, b_ub=sides, method="highs")
    assert found.status == 0, found.message
    return float(-found.fun)
