"""From a spec and the flags to the plan's document."""

import dataclasses

from cloudgavel.documents.plan import PlanDocument
from cloudgavel.jobs.spec import RunSpec


def with_policy(run: RunSpec, policy: str | None) -> RunSpec:
    """The spec with the flag's policy, if given; an unknown name is an error here, not later."""
    from cloudgavel.policies.registry import policy_named

    chosen = run if policy is None else dataclasses.replace(run, policy=policy)
    policy_named(chosen.policy)
    return chosen


def make_plan(
    run: RunSpec, budget_usd: float | None, *, policy: str | None = None, best_effort: bool = False
) -> PlanDocument:
    """Plan the whole run; the flag's budget goes before the file's."""
    from cloudgavel.runtime.real_clock import now_s
    from cloudgavel.simulator.plan import plan_run

    budget = budget_usd if budget_usd is not None else run.budget_usd
    return plan_run(
        with_policy(run, policy), budget_usd=budget, now_s=now_s(), best_effort=best_effort
    )
