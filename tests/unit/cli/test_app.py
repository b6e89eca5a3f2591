"""The door of the command line: unknown verbs, wrong flags, bugs, pipes."""

import importlib

import click
import pytest

from cloudgavel.cli import app as door
from cloudgavel.cli.app import COMMANDS, run_command_line
from cloudgavel.cli.streams import text_width


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_listed_command_exists_and_has_help(verb, capsys):
    module, attribute = COMMANDS[verb][0].split(":")
    assert isinstance(getattr(importlib.import_module(module), attribute), click.Command)
    assert run_command_line([verb, "--help"]) == 0
    assert "Usage: cloudgavel" in capsys.readouterr().out


def test_an_unknown_verb_is_usage_and_names_the_nearest(capsys):
    assert run_command_line(["plna"]) == 2
    assert "did you mean `cloudgavel plan`?" in capsys.readouterr().err


def test_an_unknown_flag_is_usage(capsys):
    assert run_command_line(["prices", "--nonsense"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error:") and "--nonsense" in err


def test_an_unexpected_exception_is_a_bug_without_a_traceback(capsys, monkeypatch):
    def broken(**_):
        raise RuntimeError("boom")

    monkeypatch.setattr(door.app, "main", broken)
    monkeypatch.delenv("CLOUDGAVEL_DEBUG", raising=False)
    assert run_command_line(["plan"]) == 70
    err = capsys.readouterr().err
    assert "a bug in cloudgavel: RuntimeError: boom" in err
    assert "Traceback" not in err


def test_text_is_as_wide_as_columns_say_also_in_a_pipe(monkeypatch):
    for columns, width in (("80", 80), ("20", 60), ("300", 100), ("", 100)):
        monkeypatch.setenv("COLUMNS", columns)
        assert text_width() == width


def test_a_rehearsal_has_nothing_to_be_refused(tmp_path, capsys):
    file = tmp_path / "jobs.yaml"
    job = "{name: a, command: 'true', steps: 9, accelerators: V100, throughput: {V100: 1}}"
    file.write_text(f"name: quick\njobs: [{job}]\n")
    assert run_command_line(["check", str(file)]) == 0
    assert "no account" in capsys.readouterr().out
    assert run_command_line(["check"]) == 2
