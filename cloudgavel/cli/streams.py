"""stdout is the answer, stderr everything else; colour and motion are decided here, apart."""

import json
import os
import shutil
import sys
from collections.abc import Mapping
from typing import Any, TextIO

import click

from cloudgavel.errors import CloudgavelError, SpecError


def answer(text: str) -> None:
    """Write the command's answer to stdout."""
    click.echo(text)


def answer_json(document: Any) -> None:
    """Write one JSON document to stdout."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def note(text: str) -> None:
    """Write a line for the person to stderr."""
    click.echo(text, err=True)


def wants_colour(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """NO_COLOR (non-empty) wins, then FORCE_COLOR, then whether it is a terminal."""
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR"):
        return True
    return stream.isatty() and environment.get("TERM") != "dumb"


def wants_motion(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Bars and live views need a terminal and nobody who asked for quiet."""
    if environment.get("CI") or environment.get("CLOUDGAVEL_NO_PROGRESS"):
        return False
    return stream.isatty() and environment.get("TERM") != "dumb"


def text_width() -> int:
    """Columns for text: ``COLUMNS``, else the terminal's, 60 to 100; 100 when piped without it."""
    if not sys.stdout.isatty() and not os.environ.get("COLUMNS"):
        return 100
    return max(60, min(100, shutil.get_terminal_size((100, 24)).columns))


def print_error(error: CloudgavelError) -> None:
    """``error:`` what is wrong, aligned facts, then ``hint:`` lines, on stderr."""
    colour = wants_colour(sys.stderr, os.environ)
    label = click.style("error:", fg="red", bold=True) if colour else "error:"
    click.echo(f"{label} {error.message}", err=True)
    if isinstance(error, SpecError):
        for mistake in error.mistakes:
            click.echo(f"  {mistake}", err=True)
    width = max((len(name) for name, _ in error.facts), default=0)
    for name, value in error.facts:
        click.echo(f"  {name.ljust(width)}  {value}", err=True)
    if error.hints:
        click.echo(err=True)
    for hint in error.hints:
        start = click.style("hint:", fg="cyan") if colour else "hint:"
        click.echo(f"{start} {hint}", err=True)
