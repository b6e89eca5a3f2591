"""Where a run keeps its things: one directory per run under the state directory.

<state>/<run>/                 its owner's alone (0700)
<state>/<run>/events.db        log, controller lease, requests
<state>/<run>/store/           object store, unless the run names another
<state>/<run>/rehearsal/       machines of a rehearsal
<state>/<run>/prices.json      offers and prices as they were when it began
<state>/<run>/controller.log   what the controller process said
<state>/<run>.lock             held while a run of this name is begun
<state>/<run>.<run id>/        an earlier, finished run of the same name
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cloudgavel.errors import UsageError
from cloudgavel.store.database import Database
from cloudgavel.store.fold import fold
from cloudgavel.store.records import RunState


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """Paths of one run; nothing is made or opened by making one."""

    state_directory: Path
    """Without links: a run's processes are known by its path, however it was spelt."""
    name: str

    def __post_init__(self) -> None:
        """Follow the links of the state directory, whether or not it exists yet."""
        object.__setattr__(self, "state_directory", self.state_directory.resolve())

    @property
    def root(self) -> Path:
        """The run's own directory."""
        return self.state_directory / self.name

    @property
    def database_path(self) -> Path:
        """SQLite file of events, lease and requests."""
        return self.root / "events.db"

    @property
    def prices_path(self) -> Path:
        """The catalogue that the run began with."""
        return self.root / "prices.json"

    @property
    def log_path(self) -> Path:
        """Output of the controller process."""
        return self.root / "controller.log"

    @property
    def rehearsal_path(self) -> Path:
        """State and scratch directories of rehearsed machines."""
        return self.root / "rehearsal"

    @property
    def exists(self) -> bool:
        """True when a run of this name was begun here."""
        return self.database_path.exists()

    def store_url(self, asked_for: str | None) -> str:
        """URL of the run's object store."""
        return asked_for if asked_for is not None else (self.root / "store").absolute().as_uri()

    @contextlib.contextmanager
    def beginning(self) -> Iterator[None]:
        """Hold the lock under which a run of this name is begun or put aside: one at a time.

        ``UsageError`` where the state directory cannot be made.
        """
        self._make(self.state_directory)
        descriptor = os.open(
            self.state_directory / f"{self.name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644
        )
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def open_database(self) -> Database:
        """Open the run's database, making the directory where needed.

        ``UsageError`` when the directory cannot be made, ``CloudgavelError`` when what is there is
        no database.
        """
        self._make(self.root, mode=0o700)
        return Database.at(self.database_path)

    def _make(self, directory: Path, *, mode: int = 0o777) -> None:
        try:
            directory.mkdir(mode=mode, parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"{directory} cannot be made: {error.strerror or error}",
                facts=[("state directory", str(self.state_directory))],
                hints=["give another one: --state DIR, or CLOUDGAVEL_STATE_DIR"],
            ) from None

    def put_aside(self, run_id: str) -> Path:
        """Rename the directory of a finished run; returns where it is now."""
        target = self.state_directory / f"{self.name}.{run_id}"
        number = 1
        while target.exists():
            number += 1
            target = self.state_directory / f"{self.name}.{run_id}.{number}"
        self.root.rename(target)
        return target


def known_runs(state_directory: Path) -> Sequence[RunDirectory]:
    """Return every run that was begun under a state directory, newest first."""
    if not state_directory.is_dir():
        return []
    found = [
        RunDirectory(state_directory, path.name)
        for path in state_directory.iterdir()
        if (path / "events.db").exists()
    ]
    return sorted(found, key=lambda each: each.database_path.stat().st_mtime, reverse=True)


def find_run(state_directory: Path, name: str | None) -> RunDirectory:
    """Return the run of this name, or the newest one; ``UsageError`` when there is none."""
    runs = known_runs(state_directory)
    for run in runs:
        if name is None or run.name == name:
            return run
    raise UsageError(
        "there is no run here" if name is None else f"there is no run `{name}` here",
        facts=[
            ("state directory", str(state_directory)),
            ("runs", ", ".join(run.name for run in runs) or "none"),
        ],
        hints=["start one: cloudgavel run jobs.yaml --budget 500"],
    )


def read_state(directory: RunDirectory) -> RunState:
    """Fold a run's log from its database."""
    database = directory.open_database()
    try:
        return fold(event for _, event in database.read())
    finally:
        database.close()
