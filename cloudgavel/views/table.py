"""Tables that fit: columns are dropped in a declared order, never wrapped."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """One column of a table."""

    head: str
    right: bool = False
    """Numbers are set to the right."""
    drop: int = 0
    """Higher goes first when the table is too wide; 0 stays always."""
    most: int | None = None
    """Longer cells are cut to this many characters."""


def table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    *,
    width: int,
    indent: str = "  ",
) -> list[str]:
    """Return the lines of a padded table with a header, at most ``width`` characters wide.

    ``rows`` has one cell per column. If even the undroppable columns are too wide, the longest
    left-set column is cut with ``~``.
    """
    kept = list(range(len(columns)))
    cells = [[_cut(row[i], columns[i].most) for i in kept] for row in rows]
    heads = [c.head for c in columns]

    def widths(of: list[int]) -> list[int]:
        return [max([len(heads[i]), *(len(row[i]) for row in cells)]) for i in of]

    def total(of: list[int]) -> int:
        return len(indent) + sum(widths(of)) + 2 * (len(of) - 1)

    while total(kept) > width:
        droppable = [i for i in kept if columns[i].drop]
        if not droppable:
            break
        kept.remove(max(droppable, key=lambda i: columns[i].drop))
    if (over := total(kept) - width) > 0:
        longest = max((i for i in kept if not columns[i].right), key=lambda i: widths([i])[0])
        most = max(4, widths([longest])[0] - over)
        for row in cells:
            row[longest] = _cut(row[longest], most)
    size = widths(kept)

    def line(row: Sequence[str]) -> str:
        parts = [
            row[i].rjust(w) if columns[i].right else row[i].ljust(w)
            for i, w in zip(kept, size, strict=True)
        ]
        return (indent + "  ".join(parts)).rstrip()

    return [line(heads), *(line(row) for row in cells)]


def _cut(text: str, most: int | None) -> str:
    if most is None or len(text) <= most:
        return text
    return text[: most - 1] + "~"
