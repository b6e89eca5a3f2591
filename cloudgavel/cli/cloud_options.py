"""Flags of the commands that look at clouds without a run."""

import re
from collections.abc import Mapping, Sequence

import click

from cloudgavel.errors import UsageError

PROJECT = click.option(
    "--project",
    metavar="ID",
    envvar="GOOGLE_CLOUD_PROJECT",
    help="Project of Google Cloud.  [env var: GOOGLE_CLOUD_PROJECT]",
)
_AWS_REGION = re.compile(r"[a-z]+(-[a-z]+)+-\d+")
"""``us-east-1``; Google's regions have no dash before the number (``us-east1``)."""


def regions_by_cloud(
    regions: Sequence[str], providers: Sequence[str]
) -> Mapping[str, tuple[str, ...]]:
    """Give each cloud the regions named in its own way; ``()`` = all, when none were named.

    A cloud of several without any of the regions is left out. A single cloud gets all of them, so
    that a name that it does not know is told by the cloud's own check.
    """
    if len(providers) == 1 or not regions:
        return {provider: tuple(regions) for provider in providers}
    found: dict[str, tuple[str, ...]] = {}
    for provider in providers:
        of_aws = provider == "aws"
        mine = tuple(each for each in regions if bool(_AWS_REGION.fullmatch(each)) is of_aws)
        if mine:
            found[provider] = mine
    return found


def require_project(project: str | None) -> str:
    """Return the project; ``UsageError`` without one."""
    if not project:
        raise UsageError(
            "no project of Google Cloud is given",
            hints=["--project MY-PROJECT, GOOGLE_CLOUD_PROJECT, or `clouds.gcp.project`"],
        )
    return project
