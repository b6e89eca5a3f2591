import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudgavel.jobs.command_check import command_mistakes, first_words
from tests.unit.jobs.reading import a_job_text, a_run, read

THERE = {"python", "sh", "torchrun", "./train.py", "./bin/run"}


def exists(word: str, workdir: str) -> bool:
    assert workdir == "/project"
    return word in THERE


def mistakes_of(command: str, **fields: str) -> tuple[str, ...]:
    quoted = "'" + command.replace("'", "''") + "'"
    run = read(a_run(a_job_text(command=quoted, **fields)))
    return command_mistakes(run, exists=exists)


@pytest.mark.parametrize(
    "command",
    [
        "python train.py --steps 3",
        "python -m anything",
        "python $SCRIPT",
        "torchrun x.py",
        "./bin/run",
        "X=1 Y='a b' python train.py",
        "cd there && ./not-here",
        "[ -f x ] && nothing",
        "(nothing)",
        "{ nothing; }",
        "for i in 1 2; do nothing; done",
        "exec nothing",
        "$RUNNER x",
        "~/bin/x",
        "> out nothing",
        "# comment",
        "sh -c 'nothing'",
    ],
)
def test_commands_that_are_there_or_only_the_shell_can_tell(command: str) -> None:
    assert mistakes_of(command) == ()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("pyhton train.py", "there is no program `pyhton` on the PATH"),
        ("X=1 pyhton train.py", "there is no program `pyhton` on the PATH"),
        ("pyhton|cat", "there is no program `pyhton` on the PATH"),
        ("./run.sh", "there is no file `./run.sh` in /project"),
        ("'my prog' x", "there is no program `my prog` on the PATH"),
        ("python trian.py", "there is no file `trian.py` in /project"),
        ("sh go.sh", "there is no file `go.sh` in /project"),
    ],
)
def test_commands_that_are_not_there(command: str, message: str) -> None:
    assert mistakes_of(command) == (f"jobs.yaml:3 a.command: {message}",)


def test_setup_and_image_may_bring_the_program() -> None:
    assert mistakes_of("nothing", setup="pip install nothing") == ()
    assert mistakes_of("nothing", image="a/b") == ()


def test_each_platform_is_checked_and_named() -> None:
    run = read(a_run(a_job_text(accelerators="[T4, v3-8]", command="{gpu: no1, tpu: no2}")))
    assert [line.split(":")[1].split(".")[-1] for line in command_mistakes(run, exists=exists)] == [
        "gpu",
        "tpu",
    ]


def test_first_words() -> None:
    assert first_words('A="x y" a\\ b "c d"e \\\n f; g') == ("a b", "c de", "f")
    assert first_words("'unclosed") == ()


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab '\"\\;&|()#\n$=", max_size=20))
def test_any_text_has_first_words(command: str) -> None:
    for word in first_words(command):
        assert isinstance(word, str)
