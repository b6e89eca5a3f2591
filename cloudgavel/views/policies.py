"""The list of policies as text: each with its formula's source, twins under their original."""

import textwrap
from collections.abc import Sequence

from cloudgavel.documents.policies import PoliciesDocument, PolicyEntry

ORDER = ("rented fleet", "rented fleet or a fixed cluster", "fixed cluster")


def policies_text(document: PoliciesDocument, *, width: int) -> str:
    """Draw one block per policy, at most ``width`` characters wide."""
    lines: list[str] = []
    kinds = sorted(
        {each.plans_for for each in document.policies},
        key=lambda kind: (ORDER.index(kind) if kind in ORDER else len(ORDER), kind),
    )
    for kind in kinds:
        mine = [each for each in document.policies if each.plans_for == kind]
        lines.append(f"for a {kind}:")
        for entry in mine:
            if entry.variant_of is None:
                lines.extend(_block(entry, document.policies, width))
        lines.append("")
    lines.append("name one that serves a rented fleet in jobs.yaml (`policy: NAME`), or your own")
    lines.append(
        "as `module:Class`; those for a fixed cluster: `cloudgavel simulate --policies NAME`"
    )
    return "\n".join(lines)


def _block(entry: PolicyEntry, known: Sequence[PolicyEntry], width: int) -> list[str]:
    twins = [each for each in known if each.variant_of == entry.name]
    texts = [entry.summary, f"source: {entry.source}"]
    if twins:
        suffixes = ", ".join(each.name.removeprefix(entry.name) for each in twins)
        only = "" if twins[0].plans_for == entry.plans_for else f" for a {twins[0].plans_for}"
        texts.append(f"also as {entry.name} + {suffixes}{only}")
    lines = [f"  {entry.name}"]
    for text in texts:
        lines.extend(
            textwrap.wrap(
                text,
                width=width,
                initial_indent="      ",
                subsequent_indent="        ",
                break_on_hyphens=False,
            )
        )
    return lines
