"""``plan`` as text, drawn from its document."""

from cloudgavel.documents.plan import (
    NINETY_PERCENT_FROM_MARKETS,
    PlanDocument,
    PlannedJob,
    ShadowPriceLine,
)
from cloudgavel.views.format import (
    capacity,
    lateness,
    money,
    rate,
    share,
    span,
    steps_rate,
)
from cloudgavel.views.table import Column, table

COLUMNS = (
    Column(head="JOB"),
    Column(head="FIRST ON"),
    Column(head="WHERE", drop=2),
    Column(head="STEPS/S", right=True, drop=4),
    Column(head="$/1K STEPS", right=True, drop=3),
    Column(head="FINISH", right=True),
    Column(head="DEADLINE"),
    Column(head="COST", right=True),
)


def _prices(plan: PlanDocument) -> str:
    """``prices 3m old (aws live, gcp snapshot of 2026-11-20)``, or ``prices of 2026-11-01``."""
    ages_s = [each.age_s for each in plan.prices if each.age_s is not None]
    if not ages_s:
        return f"prices of {plan.prices_as_of}"
    sources = {"live": "live", "mixed": "partly live", "snapshot": "snapshot"}
    told = [
        f"{each.provider} {sources[each.source]}"
        + (f" of {each.as_of}" if each.source == "snapshot" else "")
        for each in plan.prices
    ]
    return f"prices {span(max(ages_s))} old ({', '.join(told)})"


def plan_text(plan: PlanDocument, *, width: int, next_steps: bool, file: str) -> str:
    """Draw a plan for a person; ``next_steps`` adds what to type next."""
    count = len(plan.jobs)
    lines = [
        f"{plan.name} · {count} {'job' if count == 1 else 'jobs'} · policy {plan.policy} · "
        + _prices(plan),
        "",
        *table(COLUMNS, [_row(job) for job in plan.jobs], width=width),
        "",
        *_facts(plan),
    ]
    lines.extend(_missed(plan))
    lines.extend(f"Note           {note}" for note in plan.notes)
    lines.extend(_calls(plan))
    lines.append(f"Plan {plan.plan_id}. Nothing has been rented.")
    if next_steps:
        lines.extend(_next_steps(plan, file))
    return "\n".join(lines)


def _row(job: PlannedJob) -> tuple[str, ...]:
    first = job.segments[0] if job.segments else None
    if first is None:
        on, where, speed, per_1k = "nothing", "-", "-", "-"
    else:
        on = f"{first.provider} {first.instance_type} {capacity(first.capacity_type)}"
        where = first.zone
        speed = ("~" if first.steps_per_s_estimated else "") + steps_rate(first.steps_per_s)
        per_1k = "-"
        if first.steps_per_s and first.usd_per_hour is not None:
            per_1k = money(first.usd_per_hour / 3.6 / first.steps_per_s)
    return (
        job.name,
        on,
        where,
        speed,
        per_1k,
        "never" if job.finish_s is None else span(job.finish_s),
        lateness(job.finish_s, job.deadline_s),
        money(job.cost_usd),
    )


def _facts(plan: PlanDocument) -> list[str]:
    fleet, cost = plan.fleet, plan.cost
    machines = "instance" if fleet.peak_instances == 1 else "instances"
    lines = [
        f"Fleet          peak {fleet.peak_instances} {machines} ({rate(fleet.peak_usd_per_hour)}), "
        f"{fleet.instance_hours:.1f} instance-hours"
        + (f": {share(fleet.spot_share)} spot" if fleet.spot_share is not None else ""),
        f"Cost           {money(cost.expected_usd)} expected{_in_markets(plan)}; "
        f"lower bound {money(cost.lower_bound_usd)}; "
        f"on-demand only {money(cost.on_demand_only_usd)}",
    ]
    if cost.disk_usd:
        lines.append(f"Disks          {money(cost.disk_usd)} of it, estimated")
    if cost.traffic_usd is None:
        lines.append(
            "Traffic        unknown, and not in the cost: say `checkpoint: {size: ...}` of jobs "
            "that may run in another cloud than the store"
        )
    elif cost.traffic_usd:
        lines.append(
            f"Traffic        {money(cost.traffic_usd)} of it, checkpoints between clouds, estimated"
        )
    if cost.storage_usd >= 0.005:
        lines.append(
            f"Storage        {money(cost.storage_usd)} of it, checkpoints in the store, estimated"
        )
    if plan.budget_usd is not None:
        left = plan.budget_usd - cost.expected_usd
        covers = {
            True: "covers the worst case",
            False: "not the worst case"
            + (
                f", {money(plan.worst_case_budget_usd)} would be"
                if plan.worst_case_budget_usd is not None
                else ""
            ),
            None: "worst case unknown",
        }[plan.budget_covers_worst_case]
        lines.append(
            f"Budget         {money(plan.budget_usd)}: never exceeded (hard), {covers}; "
            + (f"{money(left)} left" if left >= 0 else f"{money(-left)} short")
        )
    promised = [job for job in plan.jobs if job.deadline_s is not None]
    if promised:
        met = [job for job in promised if job.deadline_met]
        line = f"Deadlines      {len(met)} of {len(promised)} met{_on_condition(met)}"
        known = [job.deadline_probability for job in promised]
        chances = [each for each in known if each is not None]
        if chances:
            least = min(chances)
            riskiest = next(job.name for job in promised if job.deadline_probability == least)
            line += f", {share(least)} of markets keep " + (
                "all" if least == 1 else f"that of {riskiest}"
            )
        slacks = [
            (job.deadline_s - job.finish_s, job.name)
            for job in met
            if job.finish_s is not None and job.deadline_s is not None
        ]
        if slacks:
            tightest_s, name = min(slacks)
            line += f"; tightest: {name}, {span(tightest_s)}"
        lines.append(line)
    lines.extend(_insurance(plan))
    binding = [_binding(p) for p in plan.shadow_prices if (p.usd_per_unit_down or 0) > 0.005]
    lines.extend(f"What binds     {text}" for text in binding[:3])
    return lines


def _on_condition(met: list[PlannedJob]) -> str:
    """``, 5 of them only if spot holds``: how many rest on what may fail."""
    said = ""
    for each, what in (
        (sum(_on_spot(job) and job.insured_from_s != 0 for job in met), "spot holds"),
        (sum(_on_estimate(job) for job in met), "the estimated speed holds"),
    ):
        if each:
            said += f", {'all' if each == len(met) else f'{each} of them'} only if {what}"
    return said


def _on_spot(job: PlannedJob) -> bool:
    return any(each.capacity_type == "spot" for each in job.segments)


def _on_estimate(job: PlannedJob) -> bool:
    return any(each.steps_per_s_estimated for each in job.segments)


def _insurance(plan: PlanDocument) -> list[str]:
    """Who pays how much for being kept even if spot vanishes, and who is not."""
    lines = [
        f"Insurance      {job.name} on demand from {span(job.sent_on_demand_s)} on, about "
        f"{money(job.insurance_usd)} of its {money(job.cost_usd)}: its deadline would be lost if "
        "spot vanished later"
        for job in plan.jobs
        if job.sent_on_demand_s is not None
    ]
    bare = [
        job.name
        + (f" (until {span(job.insured_from_s)})" if job.insured_from_s is not None else "")
        for job in plan.jobs
        if job.deadline_met and _on_spot(job) and job.insured_from_s != 0
    ]
    if bare:
        line = f"Not insured    {', '.join(bare)}: kept only if spot holds"
        enough = plan.worst_case_budget_usd
        if enough is not None and plan.budget_covers_worst_case is False:
            line += f"; {money(enough)} insures every deadline from the start"
        lines.append(line)
    guessed = [job.name for job in plan.jobs if job.deadline_s is not None and _on_estimate(job)]
    if guessed:
        lines.append(
            f"Estimated      speed of {', '.join(guessed)} (~): no deadline rests on it until it "
            "is measured or given"
        )
    return lines


def _in_markets(plan: PlanDocument) -> str:
    """Say the range over simulated markets, with how many there were."""
    low, high = plan.cost.p05_usd, plan.cost.p95_usd
    if plan.markets is None or low is None or high is None:
        return ""
    # Of fewer the quantiles are the least and the most that was seen.
    part = "90% of " if plan.markets >= NINETY_PERCENT_FROM_MARKETS else ""
    return f", {money(low)}-{money(high)} in {part}{plan.markets} simulated markets"


def _binding(price: ShadowPriceLine) -> str:
    of = price.unit.removeprefix("USD per ").removeprefix("USD/")
    measure = {"h": "hour", "USD": "dollar"}.get(of, of)
    return f"{price.constraint}: one {measure} less costs {money(price.usd_per_unit_down)}"


def _missed(plan: PlanDocument) -> list[str]:
    lines = []
    for relaxed in plan.relaxed:
        size = ""
        if relaxed.by_s is not None:
            size = f" by {span(relaxed.by_s)}"
        elif relaxed.by_usd is not None:
            size = f" by {money(relaxed.by_usd)}"
        reason = f" ({relaxed.reason})" if relaxed.reason else ""
        lines.append(f"Not kept       {relaxed.promise} of {relaxed.job}{size}{reason}")
    if not plan.feasible and plan.smallest_sufficient_budget_usd is not None:
        lines.append(
            f"Needed         ${plan.smallest_sufficient_budget_usd:,.2f} keeps every deadline and "
            "pays, in the expected market, for the on-demand machines that insure them"
        )
    return lines


def _calls(plan: PlanDocument) -> list[str]:
    """How many calls were tried on mocked clouds; each with its place, where they are listed."""
    if plan.call_count is None:
        return []
    if plan.calls is None:
        return [f"Calls          {plan.call_count} made of mocked clouds (--show-calls lists them)"]
    return [
        f"Calls          {plan.call_count} made of mocked clouds:",
        *(
            f"  {span(call.at_s):>7}  {call.provider} {call.region or '-'}  "
            f"{call.service}.{call.operation}"
            for call in plan.calls
        ),
    ]


def _next_steps(plan: PlanDocument, file: str) -> list[str]:
    if not plan.feasible:
        needed = plan.smallest_sufficient_budget_usd
        lines = []
        if needed is not None:
            lines.append(f"Give more  cloudgavel run {file} --budget {needed:.2f}")
        budget = "" if plan.budget_usd is None else f" --budget {plan.budget_usd:g}"
        lines.append(f"Or part    cloudgavel run {file}{budget} --best-effort")
        return lines
    budget = "" if plan.budget_usd is None else f" --budget {plan.budget_usd:g}"
    return [f"Apply      cloudgavel run {file}{budget}"]
