"""The account of a run as text, drawn from its document."""

from cloudgavel.documents.run import RunDocument, RunJob
from cloudgavel.views.format import capacity, lateness, money, span
from cloudgavel.views.table import Column, table

JOB_COLUMNS = (
    Column(head="JOB"),
    Column(head="STATE"),
    Column(head="STEPS", right=True, drop=4),
    Column(head="FINISH", right=True),
    Column(head="DEADLINE"),
    Column(head="MOVES", right=True, drop=2),
    Column(head="INTERRUPTED", right=True, drop=1),
    Column(head="REPEATED", right=True, drop=3),
    Column(head="COST", right=True),
)
INSTANCE_COLUMNS = (
    Column(head="INSTANCE"),
    Column(head="WHERE", drop=2),
    Column(head="RENTED", drop=1),
    Column(head="ENDED"),
    Column(head="COST", right=True),
)

STATES = {
    "finished": "finished",
    "failed": "ended with failed jobs",
    "budget_exhausted": "stopped: the budget ran out; everything is saved",
    "stopped": "stopped on request; everything is saved",
    "running": "running",
}
ENDS = {"requested": "given back", "interrupted": "taken", "vanished": "vanished"}


def run_text(run: RunDocument, *, width: int) -> str:
    """Draw the final summary: jobs, machines, money."""
    lines = [
        f"{run.name} · {STATES.get(run.state, run.state)} · {run.rounds} rounds · "
        f"policy {run.policy}",
        "",
        *table(JOB_COLUMNS, [_job(job) for job in run.jobs], width=width),
        "",
        *table(
            INSTANCE_COLUMNS,
            [
                (
                    f"{i.provider} {i.instance_type} {capacity(i.capacity_type)}",
                    i.zone,
                    i.launched_at[5:16].replace("T", " "),
                    "still running"
                    if i.end_reason is None
                    else ENDS.get(i.end_reason, i.end_reason),
                    money(i.cost_usd)
                    + (" est." if i.estimated else "")
                    + (" waived" if i.waived_usd else ""),
                )
                for i in run.instances
            ],
            width=width,
        ),
        "",
        *_money(run),
    ]
    for relaxed in run.relaxed:
        size = f" by {span(relaxed.by_s)}" if relaxed.by_s is not None else ""
        reason = f": {relaxed.reason}" if relaxed.reason else ""
        lines.append(f"Not kept       {relaxed.promise} of {relaxed.job}{size}{reason}")
    for job in run.jobs:
        if job.last_lines:
            lines.append("")
            lines.append(f"{job.name} failed {job.failures} times; its last lines:")
            lines.extend(f"  | {line}" for line in job.last_lines[-12:])
    lines.extend(f"Note           {note}" for note in run.notes)
    if run.rehearsal:
        lines.append(
            "A rehearsal: real prices, machines played by processes here. No money was spent."
        )
    return "\n".join(lines)


def _job(job: RunJob) -> tuple[str, ...]:
    if job.deadline_met is None:
        verdict = "none" if job.deadline_s is None else f"open, by {span(job.deadline_s)}"
    elif job.deadline_met:
        verdict = "kept, " + lateness(job.finish_s, job.deadline_s)
    else:
        verdict = "missed" + (
            "" if job.finish_s is None else ", " + lateness(job.finish_s, job.deadline_s)
        )
    return (
        job.name,
        job.state.lower(),
        f"{job.steps_done:,}/{job.steps_total:,}",
        "-" if job.finish_s is None else span(job.finish_s),
        verdict,
        str(job.moves),
        str(job.interruptions),
        f"{job.steps_repeated:,}",
        money(job.spent_usd),
    )


def _money(run: RunDocument) -> list[str]:
    spent = f"Spent          {money(run.spent_usd)}"
    if run.budget_usd is not None:
        spent += f" of {money(run.budget_usd)}"
    spent += f", {money(run.unattributed_usd)} of it while booting or idle"
    lines = [spent]
    if disks := sum(each.disk_usd for each in run.instances):
        lines.append(f"Disks          {money(disks)} of it, estimated")
    if traffic := sum(each.usd for each in run.lines if each.kind == "traffic"):
        lines.append(
            f"Traffic        {money(traffic)} of it, checkpoints between clouds, estimated"
        )
    storage = sum(each.usd for each in run.lines if each.kind == "storage")
    if storage >= 0.005:
        lines.append(f"Storage        {money(storage)} of it, checkpoints in the store, estimated")
    if waived := sum(each.waived_usd for each in run.instances):
        lines.append(f"Waived         {money(waived)}: AWS took the machines in their first hour")
    if run.on_demand_only_usd is not None:
        lines.append(_against(run, run.on_demand_only_usd))
    promised = [job.deadline_met for job in run.jobs if job.deadline_s is not None]
    if promised:
        said = f"Deadlines      {promised.count(True)} of {len(promised)} kept"
        for count, word in ((promised.count(False), "missed"), (promised.count(None), "open")):
            if count and None in promised:
                said += f", {count} {word}"
        lines.append(said)
    return lines


def _against(run: RunDocument, on_demand_only_usd: float) -> str:
    """The figures to compare with are of all the work: nothing is saved by leaving work undone."""
    done = sum(job.state == "FINISHED" for job in run.jobs)
    if done < len(run.jobs):
        return (
            f"Against        all {len(run.jobs)} jobs on-demand only {money(on_demand_only_usd)}, "
            f"lower bound {money(run.lower_bound_usd)}; here {done} finished"
        )
    saved = on_demand_only_usd - run.spent_usd
    return (
        f"Against        on-demand only {money(on_demand_only_usd)} "
        f"({'saved ' + money(saved) if saved >= 0 else money(-saved) + ' more'}); "
        f"lower bound {money(run.lower_bound_usd)}"
    )
