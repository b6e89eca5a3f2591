"""A report as sections of text and tables, written as Markdown or as one HTML page."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from cloudgavel.views.simulation_report import STYLE


@dataclass(frozen=True)
class Table:
    """Cells as they are shown."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Figure:
    """A drawing, on the page only: Markdown has the table beside it."""

    svg: str


Block = str | Table | Figure
"""A paragraph, a table, or a drawing."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """One comparison: what was published, what comes out here, and why they differ."""

    title: str
    published: tuple[str, ...]
    blocks: tuple[Block, ...]


def markdown(title: str, sections: Sequence[Section]) -> str:
    """Write the report as Markdown."""
    lines = [f"# {title}", ""]
    for section in sections:
        lines += [f"## {section.title}", ""]
        lines += [f"- Published: {each}" for each in section.published]
        lines += [""] if section.published else []
        for block in section.blocks:
            if isinstance(block, str):
                lines += [block, ""]
            if not isinstance(block, Table):
                continue
            lines.append("| " + " | ".join(block.head) + " |")
            lines.append("|" + "---|" * len(block.head))
            lines += ["| " + " | ".join(row) + " |" for row in block.rows]
            lines.append("")
    return "\n".join(lines)


def html(title: str, sections: Sequence[Section]) -> str:
    """Write the report as one page: no script, no network."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
    ]
    for section in sections:
        parts.append(f"<h2>{escape(section.title)}</h2>")
        if section.published:
            items = "".join(f"<li>{_inline(each)}</li>" for each in section.published)
            parts.append(f"<p>Published:</p><ul>{items}</ul>")
        for block in section.blocks:
            parts.append(_block(block))
    parts.append("</body></html>")
    return "\n".join(parts) + "\n"


def _block(block: Block) -> str:
    if isinstance(block, Figure):
        return f"<figure>{block.svg}</figure>"
    return f"<p>{_inline(block)}</p>" if isinstance(block, str) else _table(block)


def _table(table: Table) -> str:
    head = "".join(f"<th>{_inline(cell)}</th>" for cell in table.head)
    rows = "".join(
        "<tr>" + "".join(f"<td>{_inline(cell)}</td>" for cell in row) + "</tr>"
        for row in table.rows
    )
    return f"<table><tr>{head}</tr>{rows}</table>"


def _inline(text: str) -> str:
    """Escape, and turn `code` and **bold** into tags."""
    found = escape(text)
    for mark, tag in (("**", "b"), ("`", "code")):
        pieces = found.split(mark)
        found = pieces[0]
        for number, piece in enumerate(pieces[1:]):
            found += f"<{'/' if number % 2 else ''}{tag}>{piece}"
    return found
