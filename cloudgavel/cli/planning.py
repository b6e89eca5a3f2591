"""From a spec and the flags to the plan's document."""

import dataclasses
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from cloudgavel.documents.frontier import FrontierDocument
from cloudgavel.documents.plan import PlanDocument
from cloudgavel.jobs.spec import RunSpec

if TYPE_CHECKING:
    from cloudgavel.pricing.catalog import Catalog
    from cloudgavel.pricing.offer import Offer
    from cloudgavel.simulator.dry_run import DryRun

Document = TypeVar("Document", PlanDocument, FrontierDocument)


def with_policy(run: RunSpec, policy: str | None) -> RunSpec:
    """The spec with the flag's policy, if given.

    A name that is not known, or that cannot serve a rented fleet, is an error here, not later.
    """
    from cloudgavel.policies.registry import policy_of_run

    chosen = run if policy is None else dataclasses.replace(run, policy=policy)
    policy_of_run(chosen)
    return chosen


def make_plan(
    run: RunSpec,
    budget_usd: float | None,
    *,
    policy: str | None = None,
    best_effort: bool = False,
    show_calls: bool = False,
    markets: int = 0,
) -> PlanDocument:
    """Plan the whole run; the flag's budget goes before the file's.

    A run on clouds is also tried on mocked ones (``simulator.dry_run``). ``markets``: simulated
    ones for the cost range.
    """
    from cloudgavel.runtime.real_clock import now_s
    from cloudgavel.simulator.plan import plan_run

    chosen = with_policy(run, policy)
    budget = budget_usd if budget_usd is not None else run.budget_usd
    start_at_s = now_s()
    catalog, offers = _prices(chosen)

    def planned(dry: "DryRun | None") -> PlanDocument:
        return plan_run(
            chosen,
            budget_usd=budget,
            now_s=start_at_s,
            best_effort=best_effort,
            offers=offers,
            dry=dry,
            show_calls=show_calls,
            markets=markets,
            workers=os.cpu_count() or 1,
        )

    return _with_mocked_clouds(chosen, catalog, start_at_s, planned)


def make_frontier(run: RunSpec, budget_usd: float | None) -> FrontierDocument:
    """Trade cost against makespan; the largest budget is the flag's, if given."""
    from cloudgavel.runtime.real_clock import now_s
    from cloudgavel.simulator.frontier import cost_makespan_frontier

    start_at_s = now_s()
    catalog, offers = _prices(run)

    def found(dry: "DryRun | None") -> FrontierDocument:
        return cost_makespan_frontier(
            run, budget_usd=budget_usd, now_s=start_at_s, offers=offers, dry=dry
        )

    return _with_mocked_clouds(run, catalog, start_at_s, found)


def known_offers(run: RunSpec) -> "tuple[Offer, ...]":
    """The offers of a run at the prices known here."""
    return _prices(run)[1]


def _prices(run: RunSpec) -> "tuple[Catalog, tuple[Offer, ...]]":
    """Prices as they are known here, and the offers of the run, boot disks included."""
    from cloudgavel.cli.streams import note
    from cloudgavel.runtime.assemble import disk_sizes, rehearsal_offers
    from cloudgavel.runtime.price_cache import known_catalog

    catalog = known_catalog(os.environ, note=note)
    return catalog, rehearsal_offers(run, catalog, gib_by_provider=disk_sizes(os.environ))


def _with_mocked_clouds(
    run: RunSpec,
    catalog: "Catalog",
    start_at_s: float,
    made: "Callable[[DryRun | None], Document]",
) -> "Document":
    """Make a document; that of a run on clouds with mocked ones at hand."""
    if not run.clouds:
        return made(None)
    from cloudgavel.simulator.dry_run import mocked_clouds

    with mocked_clouds(run, catalog=catalog, environment=os.environ, start_at_s=start_at_s) as dry:
        return made(dry)
