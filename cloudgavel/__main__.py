"""``python -m cloudgavel`` and the ``cloudgavel`` command."""

import sys

from cloudgavel.cli.app import run_command_line


def main() -> None:
    """Run the command line and end the process with its exit code."""
    sys.exit(run_command_line(sys.argv[1:]))


if __name__ == "__main__":
    main()
