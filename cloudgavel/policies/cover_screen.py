"""Which places of each job are worth a binary in a large covering.

The linear relaxation charges each gang its share of an instance and knows every limit, so its duals
say where room is scarce. The places with the least reduced cost are kept, and those that are
cheapest for the job alone, and where it is.
"""

import numpy as np
import scipy.sparse as sparse

from cloudgavel.policies.cover_request import (
    CoverCandidate,
    CoverJob,
    CoverOffer,
    CoverRequest,
)
from cloudgavel.policies.solve import LinearProgram, solve_linear

ALL_UP_TO = 400
"""Places in all; fewer are not worth screening."""
BY_REDUCED_COST = 4
BY_COST_ALONE = 1


def promising_candidates(
    request: CoverRequest,
    jobs: list[CoverJob],
    fitting: dict[str, list[CoverCandidate]],
    offers: dict[str, CoverOffer],
) -> dict[str, list[CoverCandidate]]:
    """Return the candidates to keep, by job, in their order; all of them if the LP fails."""
    if sum(len(fitting[job.name]) for job in jobs) <= ALL_UP_TO:
        return fitting
    names = sorted(offers)
    number = {name: at for at, name in enumerate(names)}
    hours = request.horizon_s / 3600.0
    job_of, offer_of, share, whole, beside, candidates = [], [], [], [], [], []
    for row, job in enumerate(jobs):
        for candidate in fitting[job.name]:
            offer = offers[candidate.offer_id]
            part = candidate.gang_size / offer.accelerators
            worth = 0.0 if job.must_progress else candidate.value_usd_per_s * request.horizon_s
            at_home = (
                any(
                    live.instance_id in job.on_instances and live.offer_id == candidate.offer_id
                    for live in request.live
                )
                if job.on_instances
                else False
            )
            job_of.append(row)
            offer_of.append(number[candidate.offer_id])
            share.append(part if offer.shareable and part < 1 else float(np.ceil(part - 1e-9)))
            whole.append(max(1.0, float(np.ceil(part - 1e-9))))
            beside.append(
                candidate.rent_beyond_usd - worth + (0.0 if at_home else candidate.change_over_usd)
            )
            candidates.append(candidate)
    count = len(candidates)
    price = np.array([offers[name].usd_per_hour * hours + offers[name].start_usd for name in names])
    used, alone = np.array(share), np.array(whole)
    rows_job, column_offer = np.array(job_of), np.array(offer_of)
    cost = used * price[column_offer] + np.array(beside)
    cost_alone = alone * price[column_offer] + np.array(beside)

    parts, lower, upper = [], [], []
    chooses = sparse.coo_matrix((np.ones(count), (rows_job, np.arange(count))))
    parts.append(sparse.csr_matrix(chooses, shape=(len(jobs), count)))
    must = np.array([job.must_progress for job in jobs])
    lower.append(np.where(must, 1.0, -np.inf))
    upper.append(np.ones(len(jobs)))
    live_count = np.zeros(len(names))
    for live in request.live:
        if live.offer_id in number:
            live_count[number[live.offer_id]] += 1
    limits = np.array([_limit(offers[name]) for name in names], dtype=np.float64)
    by_offer = sparse.csr_matrix(
        (used, (column_offer, np.arange(count))), shape=(len(names), count)
    )
    limited = np.flatnonzero(np.isfinite(limits))
    parts.append(by_offer[limited])
    lower.append(np.full(limited.size, -np.inf))
    upper.append((limits + live_count)[limited])
    spans: list[tuple[dict[str, float], float]] = [
        (dict(quota.coefficients), quota.limit)
        for quota in request.quotas
        if np.isfinite(quota.limit)
    ]
    if request.max_instances is not None:
        spans.append((dict.fromkeys(names, 1.0), float(request.max_instances)))
    if request.max_usd_per_hour is not None:
        rates = {name: offers[name].usd_per_hour for name in names}
        spans.append((rates, request.max_usd_per_hour))
    for units, limit in spans:
        each = np.array([units.get(name, 0.0) for name in names])
        parts.append(sparse.csr_matrix(each[None, :]) @ by_offer)
        lower.append(np.array([-np.inf]))
        upper.append(np.array([max(limit, 0.0)]))
    # A job that must progress may be left out at a price above any place.
    left_out = sparse.csr_matrix(
        (must.astype(np.float64), (np.arange(len(jobs)), np.arange(len(jobs)))),
        shape=(sum(part.shape[0] for part in parts), len(jobs)),
    )
    dear = 20.0 * (float(np.abs(cost_alone).max(initial=0.0)) + 1.0)
    matrix = sparse.hstack([sparse.vstack(parts), left_out]).tocsc()
    program = LinearProgram(
        cost=np.concatenate([cost, np.full(len(jobs), dear)]),
        matrix=matrix,
        row_lower=np.concatenate(lower),
        row_upper=np.concatenate(upper),
        lower=np.zeros(count + len(jobs)),
        upper=np.full(count + len(jobs), np.inf),
    )
    answer = solve_linear(program)
    if answer.row_duals is None or answer.values is None:
        return fitting
    reduced = np.asarray(program.cost - matrix.T @ answer.row_duals)[:count]
    kept: dict[str, list[CoverCandidate]] = {}
    begins = np.searchsorted(rows_job, np.arange(len(jobs) + 1))
    for row, job in enumerate(jobs):
        own = np.arange(begins[row], begins[row + 1])
        best = own[np.lexsort((own, reduced[own]))][:BY_REDUCED_COST]
        best_alone = own[np.lexsort((own, cost_alone[own]))][:BY_COST_ALONE]
        chosen = {int(at) for at in best} | {int(at) for at in best_alone}
        if job.on_instances:
            chosen |= {
                int(at)
                for at in own
                if any(
                    live.instance_id in job.on_instances
                    and live.offer_id == candidates[int(at)].offer_id
                    for live in request.live
                )
            }
        kept[job.name] = [candidates[at] for at in sorted(chosen)]
    return kept


def _limit(offer: CoverOffer) -> float:
    """How many new instances of an offer there may be."""
    return float("inf") if offer.new_limit is None else float(max(offer.new_limit, 0))
