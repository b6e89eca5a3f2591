"""Explain a job of a plan: the first decision that has something to say about it."""

from collections.abc import Sequence

from cloudgavel.documents.explain import ExplainDocument
from cloudgavel.jobs.spec import RunSpec
from cloudgavel.policies.registry import policy_of_run
from cloudgavel.pricing.offer import Offer
from cloudgavel.runtime.assemble import bind_policy, expected_market
from cloudgavel.runtime.explain import explain_document
from cloudgavel.simulator.virtual_run import virtual_run
from cloudgavel.store.events import AttemptStarted, RoundDecided
from cloudgavel.store.fold import apply
from cloudgavel.store.records import RunState


def explain_plan(
    run: RunSpec, name: str, *, offers: Sequence[Offer], budget_usd: float | None, now_s: float
) -> ExplainDocument:
    """Play ``run`` in the expected market and explain the job when it first starts, or, where it
    never does, at the first decision.
    """
    done = virtual_run(
        run,
        offers=offers,
        market=expected_market(run),
        decide=bind_policy(policy_of_run(run)),
        now_s=now_s,
        budget_usd=budget_usd,
        best_effort=True,
    )
    first: RunState | None = None
    state = RunState()
    for event in done.events:
        state = apply(state, event)
        if isinstance(event, RoundDecided) and first is None:
            first = state
        if isinstance(event, AttemptStarted) and event.job == name:
            return explain_document(state, name, planned=True)
    return explain_document(state if first is None else first, name, planned=True)
