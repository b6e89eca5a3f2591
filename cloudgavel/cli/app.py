"""The command line: verbs found by name and imported only when used."""

import importlib
import os
import sys
import traceback
from collections.abc import Sequence

import click

from cloudgavel import __version__
from cloudgavel.cli.streams import print_error
from cloudgavel.errors import CloudgavelError, ExitCode, UsageError

COMMANDS: dict[str, tuple[str, str]] = {
    # verb: (module:attribute, one line for --help), in the order of use
    "init": ("cloudgavel.cli.commands.init:init", "Write a commented jobs.yaml to start from"),
    "validate": ("cloudgavel.cli.commands.validate:validate", "Check a jobs.yaml; every mistake"),
    "plan": ("cloudgavel.cli.commands.plan:plan", "The whole run in virtual time; rents nothing"),
    "simulate": (
        "cloudgavel.cli.commands.simulate:simulate",
        "Policies on the same workload, before a dollar is spent",
    ),
    "run": ("cloudgavel.cli.commands.run:run", "Run the jobs within the budget, or resume them"),
    "status": ("cloudgavel.cli.commands.status:status", "A run at this moment"),
    "watch": ("cloudgavel.cli.commands.watch:watch", "Attach the live view to a run"),
    "explain": ("cloudgavel.cli.commands.explain:explain", "Why a job is where it is"),
    "logs": ("cloudgavel.cli.commands.logs:logs", "What a job printed"),
    "pull": ("cloudgavel.cli.commands.pull:pull", "Bring a job's checkpoint and output here"),
    "down": ("cloudgavel.cli.commands.down:down", "Save every job and end every machine of a run"),
    "reap": ("cloudgavel.cli.commands.reap:reap", "End every machine that carries our tag"),
    "check": (
        "cloudgavel.cli.commands.check:check",
        "Credentials, quotas, store: could a run start",
    ),
    "prices": ("cloudgavel.cli.commands.prices:prices", "Offers and their prices, with their age"),
    "policies": ("cloudgavel.cli.commands.policies:policies", "Every policy, and its source"),
    "schema": ("cloudgavel.cli.commands.schema:schema", "JSON Schema of jobs.yaml for editors"),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called, not for ``--help``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return every verb in the order of use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the verb's module and return its command."""
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name][0].split(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb; an unknown one is an error with the nearest verb as a hint."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            raise UsageError(
                f"there is no command `{args[0]}`",
                hints=[f"did you mean `cloudgavel {near[0]}`?" if near else "see `cloudgavel -h`"],
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(verb, line) for verb, (_, line) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="cloudgavel")
def app() -> None:
    """Train on the cheapest mix of spot and on-demand machines that keeps deadlines and budget.

    Start with `cloudgavel init`, look with `cloudgavel plan jobs.yaml --budget 500`, then
    `cloudgavel run jobs.yaml --budget 500`.
    """


def run_command_line(arguments: Sequence[str]) -> int:
    """Run one command; every failure is printed in words and becomes an exit code."""
    try:
        result = app.main(args=list(arguments), prog_name="cloudgavel", standalone_mode=False)
    except CloudgavelError as error:
        print_error(error)
        return int(error.exit_code)
    except click.exceptions.Abort:
        return int(ExitCode.INTERRUPTED)
    except click.ClickException as error:
        hints = []
        if isinstance(error, click.UsageError) and error.ctx is not None:
            hints = [f"see `{error.ctx.command_path} --help`"]
        print_error(UsageError(error.format_message().rstrip("."), hints=hints))
        return int(ExitCode.USAGE)
    except KeyboardInterrupt:
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        # The reader of a pipe went away (`| head`): nobody is left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(ExitCode.DONE)
    except Exception as error:
        if os.environ.get("CLOUDGAVEL_DEBUG") == "1":
            traceback.print_exc()
        print_error(
            CloudgavelError(
                f"a bug in cloudgavel: {type(error).__name__}: {error}",
                hints=["set CLOUDGAVEL_DEBUG=1 for the traceback, and report it with that"],
            )
        )
        return int(ExitCode.BUG)
    return result if isinstance(result, int) else int(ExitCode.DONE)
