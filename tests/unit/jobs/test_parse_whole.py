"""The file as a whole: places, defaults, foreach, variables, references, speed."""

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudgavel.errors import ExitCode, SpecError
from cloudgavel.jobs.parse import notes_of, parse_run
from cloudgavel.jobs.template import JOBS_YAML_TEMPLATE
from tests.unit.jobs.reading import NOW_S, a_job_text, a_run, mistakes_in, read

GOLDEN = Path(__file__).parents[2] / "golden" / "jobs_yaml"


def test_all_mistakes_are_told_at_once_as_in_the_golden_file() -> None:
    text = (GOLDEN / "many_mistakes.yaml").read_text()
    with pytest.raises(SpecError) as caught:
        read(text)
    expected = (GOLDEN / "many_mistakes.txt").read_text().splitlines()
    assert [caught.value.message, *caught.value.mistakes] == expected
    assert caught.value.exit_code == ExitCode.USAGE


def test_places_are_line_column_and_path() -> None:
    text = """\
        name: run
        jobs:
          - name: a
            command: ./a
            steps: 1
            accelerators: V100
          - name: b
            command: ./b
            steps: 1
            accelerators: V100
            deadline: 6pm
    """
    (mistake,) = mistakes_in(text)
    assert mistake == (
        "jobs.yaml:11:15 jobs[1].deadline: expected a duration like 24h or an instant like "
        '2026-12-01T12:00:00Z, got "6pm"'
    )


@pytest.mark.parametrize("text", ["", "   \n", "# only a comment\n", "---\n", "null\n"])
def test_an_empty_file_says_so(text: str) -> None:
    with pytest.raises(SpecError, match=r"`jobs\.yaml` is empty") as caught:
        read(text)
    assert "cloudgavel init" in caught.value.hints[0]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("- a", "expected a map with `name` and `jobs`, got a list"),
        ("python train.py", "expected a map with `name` and `jobs`"),
        ("a: b: c", "jobs.yaml:1:5: cannot be read as YAML"),
        ("a:\n\t- b", "indent with spaces, not tabs"),
        ("a: [1", "cannot be read as YAML"),
        ("a: 'x", "cannot be read as YAML"),
        ("a: {b: ${c}d}", "quote text that contains braces"),
        ("a: \x00", "a character YAML does not allow"),
        ("a: *b", "`*b` refers to no earlier `&b`"),
        ("a: &a [*a]", "refers to no earlier"),
        ("[" * 500, "nested more than 30 levels deep"),
        ("name: x\n---\nname: y", "more than one YAML document"),
        ("name: !!python/object:os.system x\njobs: []", "tags such as"),
        ("? [a]\n: b", "expected a word as the key"),
    ],
)
def test_texts_that_are_no_jobs_yaml(text: str, part: str) -> None:
    assert any(part in mistake for mistake in mistakes_in(text)), mistakes_in(text)


def test_aliases_that_would_explode_are_refused() -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "\n".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)
    )
    assert any("more than 200,000 values" in mistake for mistake in mistakes_in(bomb))


def test_duplicate_keys_name_both_lines() -> None:
    (mistake,) = mistakes_in(a_run(a_job_text(), head="budget: 5\nbudget: 6"))
    assert mistake.endswith("the key `budget` is given twice, first in line 2")
    assert mistake.startswith("jobs.yaml:3:1")


def test_anchors_and_merge_keys() -> None:
    run = read("""\
        name: run
        jobs:
          - &base {name: a, command: ./a, steps: 5, accelerators: V100}
          - <<: *base
            name: b
            steps: 6
    """)
    assert [(job.name, job.steps_total) for job in run.jobs] == [("a", 5), ("b", 6)]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("name: x", "the run has no `jobs`"),
        ("jobs: [{name: a, command: x, steps: 1, accelerators: T4}]", "the run has no `name`"),
        ("name: x\njobs: []", "the list of jobs is empty"),
        ("name: x\njobs: {a: 1}", "each beginning with `- name:`, got a map"),
        ("name: x\njobs: [hello]", 'expected a job, got "hello"'),
        ("name: x\njobs: [{name: a, command: x, steps: 1}]", "the job has no `accelerators`"),
        ("name: x\ndefaults: 3\njobs: [{name: a}]", "expected a map"),
    ],
)
def test_missing_parts(text: str, part: str) -> None:
    assert any(part in mistake for mistake in mistakes_in(text))


def test_defaults_lie_under_every_job() -> None:
    run = read("""\
        name: run
        defaults:
          command: ./train
          accelerators: V100
          checkpoint: {path: saves, every: 10m}
          env: {A: 1, B: 2}
          retries: 5
          deadline: 24h
        jobs:
          - {name: a, steps: 1}
          - {name: b, steps: 1, checkpoint: {size: 1GiB}, env: {B: 3}, retries: 0, deadline: null}
    """)
    a, b = run.jobs
    assert (a.checkpoint.path, a.checkpoint.every_s, a.checkpoint.size_gib) == ("saves", 600, None)
    assert (b.checkpoint.path, b.checkpoint.every_s, b.checkpoint.size_gib) == ("saves", 600, 1)
    assert (dict(a.env), dict(b.env)) == ({"A": "1", "B": "2"}, {"A": "1", "B": "3"})
    assert (a.retries, b.retries) == (5, 0)
    assert (a.deadline_s, b.deadline_s) == (86400, None)


def test_a_mistake_in_defaults_is_told_once_where_it_stands() -> None:
    (mistake,) = mistakes_in(
        a_run(a_job_text(name="a"), a_job_text(name="b"), head="defaults: {retries: x}")
    )
    assert mistake.startswith("jobs.yaml:2:21 defaults.retries: expected a whole number")


def test_defaults_cannot_name_a_job() -> None:
    (mistake,) = mistakes_in(a_run(a_job_text(), head="defaults: {after: [x]}"))
    assert "it belongs to one job, not to defaults" in mistake


def test_foreach_makes_one_job_per_combination() -> None:
    run = read(
        a_run(
            a_job_text(
                name="sweep",
                foreach="{lr: [0.1, 0.01], opt: [Adam, SGD]}",
                command='"./t --lr $lr --opt ${opt} --home $HOME --pid $$"',
                env="{LR: $lr}",
                steps="'${lr}e3'",
            )
        )
    )
    assert [job.name for job in run.jobs] == [
        "sweep-lr-0.1-opt-adam",
        "sweep-lr-0.1-opt-sgd",
        "sweep-lr-0.01-opt-adam",
        "sweep-lr-0.01-opt-sgd",
    ]
    assert run.jobs[0].commands["any"] == "./t --lr 0.1 --opt Adam --home $HOME --pid $$"
    assert [job.steps_total for job in run.jobs] == [100, 100, 10, 10]
    assert run.jobs[3].env["LR"] == "0.01"


def test_foreach_names_may_place_the_variable_themselves() -> None:
    run = read(a_run(a_job_text(name="lr-$lr-run", foreach="{lr: [0.1, 1e-3, -1, 1]}")))
    names = [job.name for job in run.jobs]
    assert names == ["lr-0.1-run", "lr-1e-3-run", "lr-minus-1-run", "lr-1-run"]


def test_waiting_for_a_foreach_group_is_waiting_for_all_of_it() -> None:
    run = read(
        a_run(
            a_job_text(name="sweep", foreach="{lr: [1, 2]}"), a_job_text(name="end", after="sweep")
        )
    )
    assert run.jobs[2].after == ("sweep-lr-1", "sweep-lr-2")


@pytest.mark.parametrize(
    ("foreach", "part"),
    [
        ("{lr: 3}", "expected a list of values"),
        ("{lr: []}", "foreach.lr: the list is empty"),
        ("{lr: [[1]]}", "expected a plain value, got a list"),
        ("[1, 2]", "expected a map like {lr: [0.1, 0.01]}"),
        ("{}", "at least one variable"),
        ("{l-r: [1]}", "cannot be written as a $ variable"),
        ("{a: [1, 1]}", "the name `a-a-1` is given twice"),
    ],
)
def test_foreach_refused(foreach: str, part: str) -> None:
    (mistake,) = mistakes_in(a_run(a_job_text(foreach=foreach)))
    assert part in mistake


def test_what_a_wrong_foreach_leaves_unchecked_is_said() -> None:
    with pytest.raises(SpecError) as refused:
        read(a_run(a_job_text(name="sweep", foreach="{lr: []}", retries="x")))
    assert refused.value.hints == ("`sweep` is checked further once its foreach is right",)


def test_a_foreach_of_millions_is_refused_quickly() -> None:
    columns = ", ".join(f"v{n}: [{', '.join(map(str, range(10)))}]" for n in range(7))
    (mistake,) = mistakes_in(a_run(a_job_text(foreach=f"{{{columns}}}")))
    assert "makes 10,000,000 jobs" in mistake


def test_a_mistake_under_foreach_is_told_once() -> None:
    (mistake,) = mistakes_in(a_run(a_job_text(foreach="{lr: [1, 2]}", retries="x")))
    assert "jobs[0].retries" in mistake


def test_a_wrong_foreach_does_not_hide_other_mistakes() -> None:
    found = mistakes_in(a_run("name: a, foreach: 3, steps: 1, acelerators: V100"))
    assert len(found) == 4  # foreach, the unknown key, and two missing keys


def test_environment_variables_in_every_field_but_command_and_setup() -> None:
    environment = {"BUCKET": "b", "N": "7", "GPU": "V100", "HOME": "/h"}
    run = read(
        a_run(
            a_job_text(
                steps="$N",
                accelerators="{$GPU: 1}",
                command="./t $N $UNKNOWN",
                setup="echo $BUCKET",
                inputs="['s3://${BUCKET}/x']",
                env='{PRICE: "$$5", HALF: "5$"}',
            ),
            head="store: s3://$BUCKET/runs",
        ),
        environment=environment,
    )
    (job,) = run.jobs
    assert run.store == "s3://b/runs"
    assert (job.steps_total, job.accelerators[0].label) == (7, "V100")
    assert (job.commands["any"], job.setup) == ("./t $N $UNKNOWN", "echo $BUCKET")
    assert job.inputs == ("s3://b/x",)
    assert dict(job.env) == {"PRICE": "$5", "HALF": "5$"}


def test_undefined_variables_are_mistakes() -> None:
    (mistake,) = mistakes_in(a_run(a_job_text(entity="$TEAM")))
    assert "`$TEAM` is not defined in the environment; write $$TEAM for a literal $" in mistake
    (mistake,) = mistakes_in(a_run(a_job_text(entity="'${TEAM:-x}'")), environment={"TEAM": "t"})
    assert "expected a name in braces like ${NAME}" in mistake
    found = mistakes_in(a_run(a_job_text(foreach="{rate: [1]}", entity="$rat")))
    assert "did you mean `rate`?" in found[0]


def test_duplicate_names_give_both_lines() -> None:
    (mistake,) = mistakes_in(a_run(a_job_text(), a_job_text()))
    assert mistake == "jobs.yaml:4:5 jobs[1]: the name `a` is given twice: lines 3 and 4"


def test_after_must_exist_and_not_come_round() -> None:
    (mistake,) = mistakes_in(a_run(a_job_text(name="prepare"), a_job_text(after="[prepar]")))
    assert "no job is named `prepar`; did you mean `prepare`?" in mistake
    (mistake,) = mistakes_in(
        a_run(
            a_job_text(name="a", after="[b]"),
            a_job_text(name="b", after="[c]"),
            a_job_text(name="c", after="[a]"),
        )
    )
    assert mistake.endswith("these jobs wait for each other: a -> b -> c -> a")
    (mistake,) = mistakes_in(a_run(a_job_text(after="[a]")))
    assert mistake.endswith("a -> a")


def test_a_long_chain_is_no_cycle_and_no_stack_overflow() -> None:
    jobs = [a_job_text(name="j0")]
    jobs += [a_job_text(name=f"j{n}", after=f"[j{n + 1}]") for n in range(1, 3000)]
    jobs.append(a_job_text(name="j3000"))
    assert len(read(a_run(*jobs)).jobs) == 3001


def test_keys_without_effect_are_told() -> None:
    run = read(
        a_run(
            a_job_text(name="a", image="x", inputs="[y]", throughput="3"),
            a_job_text(name="b", image="x", throughput="3"),
            head="notify: https://example.org\ncluster: {V100: 1}",
        )
    )
    notes = notes_of(run)
    assert (
        "`image` of `a`, `b` has no effect in this version: "
        "commands run directly on the machine" in notes
    )
    assert [note.split("`")[1] for note in notes] == [
        "image",
        "inputs",
        "cluster",
    ]
    assert notes_of(read(a_run(a_job_text(throughput="3")))) == ()


def test_a_job_without_any_speed_is_told() -> None:
    (note,) = notes_of(read(a_run(a_job_text(deadline="2h"))))
    assert note == "`a` has neither `throughput` nor `profile`: give one to plan or run"
    assert notes_of(read(a_run(a_job_text(deadline="2h", throughput="3")))) == ()


def test_speeds_that_rest_on_a_profile_alone_are_told() -> None:
    text = a_run(
        a_job_text(name="a", profile="lm/bs20"),
        a_job_text(name="b", profile="lm/bs20", throughput="3"),
    )
    (note,) = notes_of(read(text))
    assert note.startswith("every speed of `a` is estimated from `profile` and counts low: ")
    assert "no deadline is promised" in note


def test_the_jobs_of_one_foreach_are_a_family() -> None:
    run = read(
        a_run(
            a_job_text(name="sweep", foreach="{lr: [1, 2]}"),
            a_job_text(name="x-$m", foreach="{m: [a, b]}"),
            a_job_text(name="alone"),
        )
    )
    assert [job.family for job in run.jobs] == ["sweep", "sweep", "x-$m", "x-$m", None]


def test_two_hundred_jobs_are_read_in_half_a_second() -> None:
    jobs = [
        a_job_text(
            name=f"job-{n}",
            accelerators="{V100: 1, A100: [1, 8], tpu-v3-8: 1}",
            throughput='{V100: 7.8, "A100:8": 120}',
            deadline="24h",
            memory="12GiB",
            env="{A: $X}",
            checkpoint="{size: 400MiB}",
        )
        for n in range(200)
    ]
    text = a_run(*jobs, head="defaults: {checkpoint: {path: ckpt, every: auto}, retries: 2}")
    spent_s = []
    for _ in range(3):
        begin_s = time.process_time()
        assert len(read(text, environment={"X": "1"}).jobs) == 200
        spent_s.append(time.process_time() - begin_s)
    assert min(spent_s) < 0.5


SEED_TEXTS = (
    JOBS_YAML_TEMPLATE,
    (GOLDEN / "many_mistakes.yaml").read_text(),
    a_run(a_job_text(foreach="{lr: [0.1, 0.01]}", env="{A: $lr, B: $HOME}", after="[a]")),
)
ODDITIES = "[]{}:,-#&*!|>'\"%@`$?~<= \n\t0123456789aTZ.+_\\/é\x00\ud800"


@settings(max_examples=250, deadline=None)
@given(st.data())
def test_mutated_text_is_read_or_refused_with_reasons(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(SEED_TEXTS))
    for _ in range(data.draw(st.integers(1, 6))):
        begin = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(begin, min(len(text), begin + 12)))
        text = text[:begin] + data.draw(st.text(alphabet=ODDITIES, max_size=6)) + text[end:]
    _is_read_or_refused(text)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_with_reasons(text: str) -> None:
    _is_read_or_refused(text)
    _is_read_or_refused(a_run(a_job_text(command=text, entity=text)))


def _is_read_or_refused(text: str) -> None:
    try:
        run = parse_run(
            text, source="jobs.yaml", base_dir="/p", environment={"HOME": "/h"}, now_s=NOW_S
        )
    except SpecError as error:
        assert error.mistakes or "is empty" in error.message
        for mistake in error.mistakes:
            place, _, message = mistake.partition(": ")
            assert place.startswith("jobs.yaml:")
            assert message
            assert "\n" not in mistake
        assert len(set(error.mistakes)) == len(error.mistakes)
    else:
        assert run.jobs
        for job in run.jobs:
            assert job.steps_total >= 1
            assert job.accelerators
            assert job.commands
