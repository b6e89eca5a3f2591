"""Why a job is where it is, as text."""

from cloudgavel.documents.explain import ExplainChoice, ExplainDocument
from cloudgavel.views.format import lateness, money, rate, share, span
from cloudgavel.views.table import Column, table

CHOICES = (
    Column(head="CHOICE"),
    Column(head="WHERE", most=40),
    Column(head="COST TO THE END", right=True),
    Column(head="LOST BY NEXT ROUND", right=True, drop=1),
)
_HOLDS = {"wait": "wait", "spot": "spot", "on_demand": "on demand"}


def explain_text(document: ExplainDocument, *, width: int) -> str:
    """Draw one job's explanation, tables at most ``width`` wide."""
    lines = [_headline(document)]
    if document.reason:
        lines.append(f"  because      {document.reason}")
    lines.extend(_facts(document))
    if document.choices:
        lines.append("")
        lines.extend(table(CHOICES, [_row(each) for each in document.choices], width=width))
    lines.extend(_bounds(document))
    return "\n".join(lines)


def _headline(document: ExplainDocument) -> str:
    if document.ended_s is not None:
        return f"{document.job}: {document.state.lower()} {span(document.ended_s)} after the start"
    where = f" on {document.on}" if document.on else ""
    when = f"in round {document.round}, {span(document.at_s)} after the start"
    kind = "planned " if document.planned else ""
    return f"{document.job}: {kind}{document.state.lower()}{where} {when}"


def _facts(document: ExplainDocument) -> list[str]:
    done = document.steps_done / max(1, document.steps_total)
    lines = [f"  progress     {share(done)} of {document.steps_total:,} steps"]
    if document.last_on is not None:
        lines.append(f"  last place   {document.last_on}: {document.last_reason}")
    if document.expected_finish_s is not None:
        words = f"  end          {span(document.expected_finish_s)} after the start"
        if document.deadline_s is not None:
            words += f", {lateness(document.expected_finish_s, document.deadline_s)}"
        lines.append(words)
    spent = f"  money        {money(document.spent_usd)} spent"
    if document.expected_cost_left_usd is not None:
        spent += f", {money(document.expected_cost_left_usd)} to come where it is"
    lines.append(spent)
    if document.deadline_s is not None:
        words = f"  deadline     {span(document.deadline_s)} after the start: {document.promise}"
        if document.reserve_usd is not None:
            words += f", {money(document.reserve_usd)} kept for on-demand"
        lines.append(words)
    if document.save_every_s is not None and (document.ended_s is None or document.last_on):
        lines.append(f"  saves        {_saves(document)}")
    return lines


def _saves(document: ExplainDocument) -> str:
    every = f"every {span(document.save_every_s)}"
    if document.save_every_given:
        return f"{every}, as given"
    if document.loss_rate_per_hour is None:
        return f"{every} until a place is chosen; then from its loss rate and {document.save_s:g} s"
    lost = f"{document.loss_rate_per_hour:.2g} losses an hour"
    return f"{every}: {lost}, {document.save_s:g} s a save"


def _row(choice: ExplainChoice) -> tuple[str, ...]:
    where = "-" if choice.offer_id is None else f"{choice.offer_id} x{choice.accelerators}"
    nothing = "goes on" if choice.chosen else "not now"
    cost = nothing if choice.expected_cost_usd is None else money(choice.expected_cost_usd)
    lost = "-" if choice.loss_chance is None else share(choice.loss_chance)
    hold = _HOLDS[choice.hold] + (" (chosen)" if choice.chosen else "")
    return (hold, where, cost, lost)


def _bounds(document: ExplainDocument) -> list[str]:
    lines = []
    if document.forced_by is not None:
        lines.append(f"  forced       {document.forced_by}: on demand now")
    if document.latest_on_demand_s is not None:
        left_s = document.latest_on_demand_s - document.at_s
        when = f"in {span(left_s)}" if left_s > 0 else "now"
        lines.append(f"  safety net   on demand {when} at the latest, if nothing is done before")
    if document.most_usd is not None:
        lines.append(f"  cap on risk  {money(document.most_usd)} in all, whatever the market does")
    less = document.deadline_usd_per_hour_less
    if less is not None and less > 0:
        lines.append(f"  binds        its deadline: an hour less would cost {rate(less)[:-2]}")
    return ["", *lines] if lines else []
