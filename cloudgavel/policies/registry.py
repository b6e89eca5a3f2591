"""Policies by name: the bundled ones, and anyone's own as ``module:Class``."""

import difflib
import importlib
import sys

from cloudgavel.errors import UsageError
from cloudgavel.jobs.spec import RunSpec
from cloudgavel.policies.base import FIXED_CLUSTER, Policy, world_of

_BUNDLED: dict[str, str] = {
    "min_cost": "cloudgavel.policies.min_cost:MinCost",
    "min_makespan": "cloudgavel.policies.min_makespan:MinMakespan",
    "on_demand_only": "cloudgavel.policies.on_demand_only:OnDemandOnly",
    "allox": "cloudgavel.policies.fixed.allox:AlloX",
    "allox_agnostic": "cloudgavel.policies.fixed.twins:allox_agnostic",
    "least_cost_deadlines": (
        "cloudgavel.policies.fixed.least_cost_deadlines:LeastCostWithDeadlines"
    ),
    "isolated": "cloudgavel.policies.fixed.isolated:Isolated",
    "las_queues": "cloudgavel.policies.fixed.las_queues:LasQueues",
    "random_packing": "cloudgavel.policies.fixed.random_packing:RandomPacking",
    "throughput_per_price_linear": (
        "cloudgavel.policies.fixed.throughput_per_usd:ThroughputPerPriceLinear"
    ),
    **{
        name + variant: path if not variant else f"cloudgavel.policies.fixed.twins:{name}{variant}"
        for name, path in {
            "fifo": "cloudgavel.policies.fixed.fifo:Fifo",
            "finish_time_fairness": "cloudgavel.policies.both_worlds:finish_time_fairness",
            "hierarchical_water_filling": (
                "cloudgavel.policies.fixed.water_filling:HierarchicalWaterFilling"
            ),
            "makespan": "cloudgavel.policies.both_worlds:makespan",
            "max_min_fairness": "cloudgavel.policies.both_worlds:max_min_fairness",
            "max_total_throughput": (
                "cloudgavel.policies.fixed.max_total_throughput:MaxTotalThroughput"
            ),
            "shortest_remaining": "cloudgavel.policies.fixed.shortest_remaining:ShortestRemaining",
            "throughput_per_usd": "cloudgavel.policies.fixed.throughput_per_usd:ThroughputPerUsd",
            "throughput_per_usd_deadlines": (
                "cloudgavel.policies.fixed.throughput_per_usd:ThroughputPerUsdWithDeadlines"
            ),
            "water_filling": "cloudgavel.policies.fixed.water_filling:WaterFilling",
        }.items()
        for variant in ("", "_agnostic", "_space_sharing")
    },
}
"""Name -> where the class is; loaded on demand, because solvers take seconds to import."""


def policy_names() -> tuple[str, ...]:
    """Names of the bundled policies, sorted; loads no solver."""
    return tuple(sorted(_BUNDLED))


def policies() -> tuple[Policy, ...]:
    """All bundled policies, sorted by name."""
    return tuple(policy_named(name) for name in policy_names())


def policy_of_run(run: RunSpec) -> Policy:
    """Return the policy of a run, which rents its machines.

    A module of one's own is also looked for beside the run's file. Raises ``UsageError`` as
    ``policy_named`` does, and for a policy that can only divide a fixed cluster.
    """
    policy = policy_named(run.policy, folder=run.folder)
    if world_of(policy) == FIXED_CLUSTER:
        able = [name for name in policy_names() if world_of(policy_named(name)) != FIXED_CLUSTER]
        raise UsageError(
            f"the policy `{run.policy}` divides a fixed cluster, and a run rents its machines",
            facts=[("for a rented fleet", ", ".join(able))],
            hints=[
                "what each of them does: cloudgavel policies",
                f"on a fixed cluster: cloudgavel simulate --cluster ... --policies {run.policy}",
            ],
        )
    return policy


def policy_named(name: str, *, folder: str | None = None) -> Policy:
    """Return the policy called ``name``, or the one that ``module:Class`` points to.

    ``folder`` is searched for the module after everything that is installed, and stays on the
    path: the module may import its neighbours later. Raises ``UsageError`` for a name that is not
    known (with the nearest ones), a module or class that cannot be loaded, and a class that is
    not a policy.
    """
    if name in _BUNDLED:
        return _load(_BUNDLED[name])
    if ":" in name:
        if folder is not None and folder not in sys.path:
            sys.path.append(folder)
        return _load(name)
    near = difflib.get_close_matches(name, policy_names(), n=3, cutoff=0.5)
    hints = [f"did you mean `{candidate}`?" for candidate in near]
    hints.append("list them with `cloudgavel policies`; name your own as `module:Class`")
    raise UsageError(
        f"there is no policy `{name}`", facts=[("known", ", ".join(policy_names()))], hints=hints
    )


def _load(path: str) -> Policy:
    module_name, _, class_name = path.partition(":")
    if not module_name or not class_name:
        raise UsageError(f"`{path}` does not name a policy", hints=["write it as `module:Class`"])
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever a user's module raises is theirs to see
        raise UsageError(
            f"the policy module `{module_name}` cannot be loaded",
            facts=[("reason", f"{type(error).__name__}: {error}")],
        ) from error
    found = getattr(module, class_name, None)
    if found is None:
        known = [key for key in vars(module) if not key.startswith("_")]
        near = difflib.get_close_matches(class_name, known, n=1)
        raise UsageError(
            f"`{module_name}` has no `{class_name}`",
            hints=[f"did you mean `{near[0]}`?"] if near else [],
        )
    try:
        policy = found() if isinstance(found, type) else found
    except Exception as error:
        raise UsageError(
            f"the policy `{path}` cannot be made",
            facts=[("reason", f"{type(error).__name__}: {error}")],
            hints=["give every argument of the class a default"],
        ) from error
    if not isinstance(policy, Policy):
        raise UsageError(
            f"`{path}` is not a policy",
            facts=[("needs", "name, summary, source, allocate(problem) -> Allocation")],
        )
    return policy
