"""The step loop: resumes, reports, stays within its grant, saves and stops when told to."""

import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from cloudgavel.messages.control import STEP_FILE
from cloudgavel.training.governed import GovernedLoop

SaveOrLoad = Callable[[Path], object]

_current: GovernedLoop | None = None


def steps(
    total: int | None = None,
    *,
    save: SaveOrLoad | None = None,
    load: SaveOrLoad | None = None,
    standalone_dir: str | os.PathLike[str] | None = None,
) -> Iterator[int]:
    """Yield the index (from 0) of every step still to be done.

    ``total``: steps in all; ``None`` = what jobs.yaml says (``CLOUDGAVEL_TOTAL_STEPS``).
    ``save(directory)`` writes everything needed to go on exactly (parameters, optimiser, random
    state) into an empty directory; ``load(directory)`` reads it back before the first step.
    Without ``load`` the loop starts at 0; without ``save`` nothing can be saved.

    Under cloudgavel the loop pauses when its grant is used up, saves when ordered and, ordered to
    stop, saves and raises ``SystemExit`` with code ``STOPPED_EXIT_CODE`` (75) from the ``for``
    line. An exception of ``save`` is reported and training goes on; one of ``load`` is raised.

    Elsewhere it counts. With ``standalone_dir`` it then loads from that directory if a checkpoint
    is there and saves into it at the end; without, nothing is read or written.
    """
    control = os.environ.get("CLOUDGAVEL_CONTROL_DIR", "")
    if total is None:
        text = os.environ.get("CLOUDGAVEL_TOTAL_STEPS", "")
        if not text.isdigit():
            raise ValueError("steps() needs a total outside cloudgavel")
        total = int(text)
    if type(total) is not int or total < 1:
        raise ValueError(f"total must be a whole number of at least 1, not {total!r}")
    if not control or not Path(control).is_dir():
        return _standalone(total, save, load, standalone_dir)
    return _governed(Path(control), total, save, load)


def report(*, loss: float | None = None) -> None:
    """Tell cloudgavel how training goes; shown with the next progress. Elsewhere: nothing.

    A loss that is not finite is shown as unknown.
    """
    if _current is not None and loss is not None:
        value = float(loss)
        _current.loss = value if math.isfinite(value) else None


def checkpoint_step(directory: Path) -> int | None:
    """Step at which the checkpoint in ``directory`` was made; ``None`` = it does not say."""
    try:
        step = json.loads((directory / STEP_FILE).read_bytes())["step"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return step if isinstance(step, int) and step >= 0 else None


def _governed(
    control: Path, total: int, save: SaveOrLoad | None, load: SaveOrLoad | None
) -> Iterator[int]:
    global _current
    first = 0
    checkpoint = Path(os.environ.get("CLOUDGAVEL_CHECKPOINT_DIR", "ckpt"))
    if load is not None:
        found = checkpoint_step(checkpoint)
        if found is not None:
            load(checkpoint)
            first = found
    is_first_rank = os.environ.get("CLOUDGAVEL_RANK", "0") == "0"
    loop = GovernedLoop(control, total=total, first=first, save=save, saves_here=is_first_rank)
    _current = loop
    step = first
    while loop.settle(step):
        yield step
        step += 1


def _standalone(
    total: int,
    save: SaveOrLoad | None,
    load: SaveOrLoad | None,
    standalone_dir: str | os.PathLike[str] | None,
) -> Iterator[int]:
    directory = None if standalone_dir is None else Path(standalone_dir)
    first = 0
    if directory is not None and load is not None:
        found = checkpoint_step(directory)
        if found is not None:
            load(directory)
            first = found
    yield from range(first, total)
    if directory is not None and save is not None and first < total:
        directory.parent.mkdir(parents=True, exist_ok=True)
        fresh = directory.with_name(directory.name + ".new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        save(fresh)
        (fresh / STEP_FILE).write_text(json.dumps({"step": total}))
        if directory.exists():
            shutil.rmtree(directory)
        os.replace(fresh, directory)
