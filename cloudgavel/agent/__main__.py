"""``python -m cloudgavel.agent``: serve one instance of a run."""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from cloudgavel.agent.environment import own_address
from cloudgavel.agent.main import AgentSettings, configure_logging, serve
from cloudgavel.agent.process import end_leftovers
from cloudgavel.errors import CloudgavelError
from cloudgavel.objects.open import open_store


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until the end; return the exit code (0 = ended in order)."""
    parser = argparse.ArgumentParser(
        prog="python -m cloudgavel.agent", description="Serve one instance of a cloudgavel run."
    )
    parser.add_argument("--store", help="URL of the run's store")
    parser.add_argument("--run", help="the run's id")
    parser.add_argument("--instance", help="this instance's id")
    parser.add_argument(
        "--scratch", required=True, type=Path, help="directory for this instance alone"
    )
    parser.add_argument(
        "--power-off-at", type=float, metavar="UNIX_S", help="save and end at this time"
    )
    parser.add_argument(
        "--cloud",
        choices=("aws", "gcp"),
        help="whose metadata server to listen to for interruptions (default: none)",
    )
    parser.add_argument(
        "--notices-every",
        type=float,
        metavar="S",
        help="seconds between two looks at the metadata server (default: as the cloud advises)",
    )
    parser.add_argument(
        "--end-leftovers",
        action="store_true",
        help="only end (SIGKILL) every job process of this scratch directory, then exit",
    )
    given = parser.parse_args(arguments)
    scratch = given.scratch.resolve()
    if given.end_leftovers:
        end_leftovers(scratch)
        return 0
    missing = [name for name in ("store", "run", "instance") if not getattr(given, name)]
    if missing:
        parser.error("needed: " + ", ".join(f"--{name}" for name in missing))
    configure_logging()
    notices = None
    if given.cloud is not None:
        from cloudgavel.agent.metadata import notice_source

        notices = notice_source(given.cloud, os.environ, wall=time.time)
        if given.notices_every is not None:
            notices.pause_s = given.notices_every
    try:
        serve(
            AgentSettings(
                store=open_store(given.store),
                run_id=given.run,
                instance_id=given.instance,
                scratch=scratch,
                environment=dict(os.environ),
                address=own_address(),
                power_off_at_s=given.power_off_at,
                notices=notices,
                monotonic=time.monotonic,
                wall=time.time,
            )
        )
    except CloudgavelError as error:
        facts = "".join(f"\n  {label}: {value}" for label, value in error.facts)
        sys.stderr.write(f"error: {error.message}{facts}\n")
        return int(error.exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
