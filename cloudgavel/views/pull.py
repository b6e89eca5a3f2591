"""What was pulled, drawn from its document."""

from collections.abc import Sequence

from cloudgavel.documents.pull import PullDocument, PullFile

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size(size_bytes: int) -> str:
    """``1.4 GiB``: three digits at most."""
    value, unit = float(size_bytes), 0
    while value >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return (
        f"{value:.0f} {_UNITS[unit]}"
        if unit == 0 or value >= 100
        else f"{value:.1f} {_UNITS[unit]}"
    )


def pull_text(pulled: PullDocument) -> str:
    """Say where the checkpoint and the logs are now, and what was there before."""
    lines = []
    if pulled.step is not None:
        lines.append(
            f"{pulled.job}  checkpoint at step {pulled.step:,} of {pulled.steps_total:,}, "
            f"{_files(pulled.checkpoint)} in {pulled.directory}/checkpoint-{pulled.step}"
        )
    if pulled.logs:
        lines.append(f"{pulled.job}  output, {_files(pulled.logs)} in {pulled.directory}/logs")
    if not lines:
        lines.append(f"{pulled.job}  has printed nothing yet")
    lines += [f"Note  {note}" for note in pulled.notes]
    return "\n".join(lines)


def _files(files: Sequence[PullFile]) -> str:
    count = f"{len(files)} file{'' if len(files) == 1 else 's'}"
    words = f"{count}, {size(sum(each.size_bytes for each in files))}"
    there = sum(1 for each in files if each.was_there)
    if there == len(files):
        return f"{words} (all there already)"
    return f"{words} ({there} there already)" if there else words
