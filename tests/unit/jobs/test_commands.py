"""`validate`, `schema`, `init` and the reading of files, as a person meets them."""

import json
import os
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from cloudgavel.cli.commands.init import init
from cloudgavel.cli.commands.schema import schema
from cloudgavel.cli.commands.validate import validate
from cloudgavel.cli.spec_file import load_run, require_startable, start_mistakes
from cloudgavel.errors import CloudgavelError, ExitCode, SpecError, UsageError
from cloudgavel.jobs.json_schema import jobs_yaml_schema
from cloudgavel.jobs.template import JOBS_YAML_TEMPLATE
from tests.unit.jobs.reading import a_job_text, a_run, mistakes_in


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def invoke(command: click.Command, *arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments))


def error_of(result: Result) -> CloudgavelError:
    assert isinstance(result.exception, CloudgavelError), result
    return result.exception


def test_init_writes_a_file_that_validates(folder: Path) -> None:
    (folder / "train.py").write_text("")
    assert invoke(init).exit_code == 0
    result = invoke(validate)
    assert result.exit_code == 0
    assert result.stdout == "jobs.yaml: 1 job, no mistakes\n"


def test_the_template_is_right_also_with_every_example_uncommented() -> None:
    lines = [
        line.replace("# ", "", 1) if line.lstrip().startswith("#") else line
        for line in JOBS_YAML_TEMPLATE.splitlines()
        if not line.lstrip().startswith("#") or ": " in line or line.endswith("clouds:")
    ]
    assert mistakes_in("\n".join(lines)) == ()
    assert any("sweep" in line for line in lines)


def test_init_overwrites_only_with_force(folder: Path) -> None:
    (folder / "jobs.yaml").write_text("mine")
    error = error_of(invoke(init))
    assert error.exit_code == ExitCode.USAGE
    assert (folder / "jobs.yaml").read_text() == "mine"
    assert any("--force" in hint for hint in error.hints)
    assert invoke(init, "--force").exit_code == 0
    assert (folder / "jobs.yaml").read_text() == JOBS_YAML_TEMPLATE
    assert "cannot be written" in error_of(invoke(init, "no/such/place.yaml")).message


def test_schema_prints_the_schema() -> None:
    assert json.loads(invoke(schema).stdout) == jobs_yaml_schema()


def test_validate_keeps_notes_off_stdout(folder: Path) -> None:
    (folder / "x.yaml").write_text(a_run(a_job_text(command="nosuchprogram", inputs="[x]")))
    result = invoke(validate, "x.yaml")
    assert result.stdout == "x.yaml: 1 job, no mistakes\n"
    assert "note: `inputs` of `a` has no effect" in result.stderr
    assert "x.yaml:3 a.command: there is no program `nosuchprogram`" in result.stderr


def test_validate_raises_every_mistake_for_the_top_level(folder: Path) -> None:
    (folder / "jobs.yaml").write_text(
        a_run(a_job_text(steps="0"), a_job_text(name="b", deadlin="3h"))
    )
    error = error_of(invoke(validate))
    assert isinstance(error, SpecError)
    assert len(error.mistakes) == 2
    assert error.exit_code == ExitCode.USAGE


def test_a_missing_file_suggests_the_one_that_is_there(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no file `jobs\.yaml`") as caught:
        load_run("jobs.yaml")
    assert "cloudgavel init" in caught.value.hints[0]
    (folder / "jobs.yml").write_text("")
    with pytest.raises(UsageError) as caught:
        load_run("jobs.yaml")
    assert caught.value.hints == ("did you mean `jobs.yml`?",)


def test_files_that_cannot_be_read(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "jobs.yaml").write_text("")
    with pytest.raises(UsageError, match="is a directory") as caught:
        load_run("sub")
    assert "sub/jobs.yaml" in caught.value.hints[0]
    with pytest.raises(SpecError, match="is empty"):
        load_run("sub/jobs.yaml")
    (folder / "binary").write_bytes(b"a: \xff\xfe")
    with pytest.raises(SpecError, match="UTF-8"):
        load_run("binary")
    with pytest.raises(UsageError, match="cannot be read"):
        load_run("a\0b")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_without_permission(folder: Path) -> None:
    (folder / "jobs.yaml").write_text("")
    (folder / "jobs.yaml").chmod(0)
    with pytest.raises(UsageError, match="may not be read"):
        load_run("jobs.yaml")


def test_paths_count_from_the_file_and_variables_from_the_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEAM", "vision")
    (folder / "sub").mkdir()
    (folder / "sub" / "jobs.yaml").write_text(a_run(a_job_text(workdir="src", entity="$TEAM")))
    (job,) = load_run("sub/jobs.yaml").jobs
    assert (job.workdir, job.entity) == (str(folder / "sub" / "src"), "vision")


def test_a_run_is_resumed_although_a_deadline_has_gone_by(folder: Path) -> None:
    (folder / "jobs.yaml").write_text(a_run(a_job_text(deadline="2020-01-01T00:00:00Z")))
    with pytest.raises(SpecError) as caught:
        load_run("jobs.yaml")
    assert "the deadline is in the past" in caught.value.mistakes[0]
    (job,) = load_run("jobs.yaml", past_deadlines=True).jobs
    assert job.deadline_at_s == 1577836800


def test_what_keeps_a_run_from_starting_is_told_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_SUCH_SECRET", raising=False)
    (folder / "train").write_text("")
    (folder / "jobs.yaml").write_text(
        a_run(
            a_job_text(name="good"),
            a_job_text(name="b", workdir="gone"),
            a_job_text(name="c", command="./gone"),
            a_job_text(name="d", secrets="[NO_SUCH_SECRET]"),
        )
    )
    run = load_run("jobs.yaml")
    found = start_mistakes(run)
    assert [line.split(" ")[1] for line in found] == ["b.workdir:", "d.secrets:", "c.command:"]
    with pytest.raises(SpecError, match="nothing was rented") as caught:
        require_startable(run)
    assert caught.value.mistakes[: len(found)] == found
    assert all(".throughput" in line for line in caught.value.mistakes[len(found) :])
