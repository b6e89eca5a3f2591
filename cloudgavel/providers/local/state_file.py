"""The rehearsal's whole state in one file, and beside it what was about to happen."""

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cloudgavel.errors import CloudgavelError

SCHEMA_VERSION = 1
STATE_FILE = "rehearsal.json"
ADVANCE_FILE = "advance.json"


def write_state(directory: Path, *, run_id: str, world: Mapping[str, Any]) -> None:
    """Replace the state."""
    state = {"schema_version": SCHEMA_VERSION, "run_id": run_id, "world": world}
    _replace(directory / STATE_FILE, state)


def write_advance(directory: Path, *, from_s: float, to_s: float) -> None:
    """Note down that time is about to move from the written state's instant."""
    _replace(directory / ADVANCE_FILE, {"from_s": from_s, "to_s": to_s})


def read_advance(directory: Path, *, now_s: float) -> float | None:
    """Return where time was about to move from ``now_s``; ``None`` = nowhere, or it is there."""
    try:
        noted = json.loads((directory / ADVANCE_FILE).read_text())
        return float(noted["to_s"]) if noted["from_s"] == now_s else None
    except FileNotFoundError:
        return None


def _replace(path: Path, document: Mapping[str, Any]) -> None:
    """Replace a file, readable for its owner only (orders may hold secrets).

    It is not synced: it has to survive this process, and nothing it speaks of survives the machine.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".rehearsal-")
    with os.fdopen(descriptor, "w") as sink:
        sink.write(json.dumps(document, separators=(",", ":")))
    os.replace(name, path)


def read_state(directory: Path, run_id: str) -> dict[str, Any] | None:
    """Return what was written last; ``None`` = nothing yet.

    ``CloudgavelError`` for a file of another run or version, or one that cannot be read.
    """
    path = directory / STATE_FILE
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    try:
        state = json.loads(text)
        known_run_id, version = state["run_id"], state["schema_version"]
    except (ValueError, KeyError, TypeError) as error:
        raise CloudgavelError(
            "the rehearsal's state cannot be read", facts=[("file", str(path))]
        ) from error
    if version != SCHEMA_VERSION or known_run_id != run_id:
        raise CloudgavelError(
            "the rehearsal's state is of another run or version",
            facts=[("file", str(path)), ("run", str(known_run_id)), ("version", str(version))],
        )
    return dict(state)
