"""The rehearsal's whole state in one file, replaced whole."""

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cloudgavel.errors import CloudgavelError

SCHEMA_VERSION = 1
STATE_FILE = "rehearsal.json"


def write_state(
    path: Path, *, run_id: str, advancing_to_s: float | None, world: Mapping[str, Any]
) -> None:
    """Replace the file, readable for its owner only (orders may hold secrets).

    It is not synced: it has to survive this process, and nothing it speaks of survives the machine.
    """
    state = {
        "schema_version": SCHEMA_VERSION,
        "run_id": run_id,
        "advancing_to_s": advancing_to_s,
        "world": world,
    }
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".rehearsal-")
    with os.fdopen(descriptor, "w") as sink:
        json.dump(state, sink, separators=(",", ":"))
    os.replace(name, path)


def read_state(path: Path, run_id: str) -> dict[str, Any] | None:
    """Return what was written last; ``None`` = nothing yet.

    ``CloudgavelError`` for a file of another run or version, or one that cannot be read.
    """
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
