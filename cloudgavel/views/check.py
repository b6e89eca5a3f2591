"""What ``cloudgavel check`` found, as text."""

from cloudgavel.documents.check import CheckDocument, CheckStatus
from cloudgavel.views.table import Column, table

_WORDS = {CheckStatus.PASSED: "ok", CheckStatus.WARNING: "warn", CheckStatus.FAILED: "FAIL"}
_COLUMNS = (
    Column(head=""),
    Column(head="WHERE"),
    Column(head="WHAT"),
    Column(head="FOUND"),
)


def check_text(document: CheckDocument, *, width: int) -> str:
    """Draw one line each, what to do under the table, and the sum."""
    rows = [
        (
            _WORDS[line.status],
            line.provider + (f" {line.region}" if line.region else ""),
            line.subject,
            line.detail,
        )
        for line in document.lines
    ]
    lines = table(_COLUMNS, rows, width=width)
    advice = dict.fromkeys(line.hint for line in document.lines if line.hint)
    if advice:
        lines.append("")
        lines += [f"hint: {hint}" for hint in advice]
    counts = {
        status: sum(1 for line in document.lines if line.status is status) for status in CheckStatus
    }
    lines.append("")
    lines.append(
        f"{counts[CheckStatus.PASSED]} ok, {counts[CheckStatus.WARNING]} to look at, "
        f"{counts[CheckStatus.FAILED]} failed"
    )
    return "\n".join(lines)
