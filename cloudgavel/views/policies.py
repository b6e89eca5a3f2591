"""The list of policies as text: each with its formula's source, twins under their original."""

import textwrap

from cloudgavel.documents.policies import PoliciesDocument, PolicyEntry

ORDER = ("rented fleet", "fixed cluster")


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
                lines.extend(_block(entry, mine, width))
        lines.append("")
    lines.append("name one in jobs.yaml (`policy: NAME`), or your own as `module:Class`")
    return "\n".join(lines)


def _block(entry: PolicyEntry, mine: list[PolicyEntry], width: int) -> list[str]:
    twins = [each.name for each in mine if each.variant_of == entry.name]
    texts = [entry.summary, f"source: {entry.source}"]
    if twins:
        suffixes = ", ".join(name.removeprefix(entry.name) for name in twins)
        texts.append(f"also as {entry.name} + {suffixes}")
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
