"""The regions that a run may ask for."""

from collections.abc import Sequence

from cloudgavel.errors import UsageError


def check_regions(regions: Sequence[str]) -> None:
    """Raise ``UsageError`` for a region that EC2 does not have, with the nearest that it has."""
    import difflib

    from cloudgavel.providers.aws.clients import known_regions

    if not regions:
        raise UsageError("no region of AWS is asked for", hints=["name one under `clouds`"])
    known = known_regions()
    for region in regions:
        if region not in known:
            near = difflib.get_close_matches(region, known, n=1)
            raise UsageError(
                f"AWS has no region `{region}`",
                hints=[f"did you mean `{near[0]}`?" if near else "see `cloudgavel prices`"],
            )
