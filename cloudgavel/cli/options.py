"""Flags that several commands share, and how they are read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from cloudgavel.errors import UsageError

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

FILE = click.argument("file", metavar="FILE", default="jobs.yaml", required=False)


def output_options(*forms: str) -> Decorator:
    """``--output FORM`` and ``--json``, read with ``chosen_output``."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        function = click.option("--json", "as_json", is_flag=True, help="Same as --output json.")(
            function
        )
        return click.option(
            "--output", type=click.Choice(forms), default="text", help="Form of the answer."
        )(function)

    return add


def chosen_output(output: str, as_json: bool) -> str:
    """``json`` when either flag says so."""
    return "json" if as_json else output


BUDGET = click.option(
    "--budget",
    "budget",
    metavar="USD",
    help="USD for the whole run, money already spent included; overrides the file's.",
)
POLICY = click.option("--policy", metavar="NAME", help="Overrides the file's policy.")
STATE = click.option(
    "--state",
    "state_dir",
    metavar="DIR",
    default=".cloudgavel",
    envvar="CLOUDGAVEL_STATE_DIR",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Where runs live on this machine.",
)
RUN_NAME = click.argument("name", metavar="[RUN]", required=False)


def budget_usd(written: str | None) -> float | None:
    """``--budget 500`` or ``$1,500`` as USD; ``UsageError`` for what is not a positive amount."""
    if written is None:
        return None
    from cloudgavel.jobs.quantities import QuantityError, parse_usd

    try:
        value = parse_usd(written)
    except QuantityError as error:
        raise UsageError(
            f"--budget is not an amount of money: {error}", hints=["for example --budget 500"]
        ) from None
    if value <= 0:
        raise UsageError(
            f"--budget must be more than 0, got {written}", hints=["for example --budget 500"]
        )
    return value
