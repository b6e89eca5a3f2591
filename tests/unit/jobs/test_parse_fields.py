"""One field at a time: what it accepts, and what it says about the rest."""

import pytest

from cloudgavel.jobs.spec import AcceleratorRequest, CloudSpec, RehearsalSpec
from tests.unit.jobs.reading import (
    NOW_S,
    a_job_text,
    a_run,
    job_with,
    mistake_with,
    mistakes_in,
    read,
)


def gangs(text: str) -> list[str]:
    return [request.label for request in job_with(accelerators=text).accelerators]


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("V100", ["V100"]),
        ("V100:4", ["V100:4"]),
        ("'A100: 8'", ["A100:8"]),
        ("nvidia-tesla-v100", ["V100"]),
        ("[V100, A100:8]", ["V100", "A100:8"]),
        ("{V100: 1, A100: [1, 8], tpu-v3-8: 1}", ["V100", "A100", "A100:8", "tpu-v3-8"]),
        ("{T4: 1}", ["T4"]),
        ("{T4: }", ["T4"]),
        ("{T4}", ["T4"]),
        ("[T4:1]", ["T4"]),
        ("[{T4: 1}]", ["T4"]),
        ("[{T4: [1, 4]}, v3-8]", ["T4", "T4:4", "tpu-v3-8"]),
        ("[V100, v100, V100:1]", ["V100"]),
    ],
)
def test_accelerator_spellings(text: str, labels: list[str]) -> None:
    assert gangs(text) == labels


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("V1000", "unknown accelerator `V1000`; did you mean `V100`?"),
        ("RTX4090", "unknown accelerator `RTX4090`; known are K80"),
        ("V100:0", "the count must be between 1 and 4096"),
        ("V100:x", "expected a whole number"),
        ("'V100:'", "expected a whole number"),
        ("':8'", "expected an accelerator like V100 or A100:8"),
        ("{V100: 1.5}", "expected a whole number"),
        ("{V100: -1}", "the count must be between"),
        ("{V100: []}", "got an empty list"),
        ("{V100: {a: 1}}", "expected one value, got a map"),
        ("{'V100:2': 3}", "the count is already in the name"),
        ("tpu-v3-8:2", "is a whole slice and its count is 1, got 2"),
        ("{tpu-v3-8: 2}", "is a whole slice and its count is 1, got 2"),
        ("[]", "expected accelerators like [V100, A100:8]"),
        ("[[V100]]", "got a list"),
    ],
)
def test_accelerators_refused(text: str, part: str) -> None:
    assert part in mistake_with(accelerators=text)


def test_throughput_is_kept_by_label() -> None:
    job = job_with(accelerators="{V100: 1, A100: [1, 8]}", throughput='{v100: 7.8, "A100:8": 120}')
    assert dict(job.throughput_steps_per_s) == {"V100": 7.8, "A100:8": 120.0}
    assert dict(job_with(throughput="7.8").throughput_steps_per_s) == {"V100": 7.8}
    assert dict(job_with(throughput="{V100: }").throughput_steps_per_s) == {}


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{T4: 1}", "`T4` is not among the job's accelerators, which are V100"),
        ('{"V100:4": 1}', "`V100:4` is not among the job's accelerators"),
        ("{V100: 0}", "must be more than 0"),
        ("{V100: -1}", "must be more than 0"),
        ("{V100: .nan}", "expected a number"),
        ("{V100: inf}", "expected a number"),
        ("{V100: 1, v100: 2}", "`V100` is given twice"),
        ("[1]", "expected a map like {V100: 7.8}, got a list"),
    ],
)
def test_throughput_refused(text: str, part: str) -> None:
    assert part in mistake_with(throughput=text)


def test_one_number_needs_one_accelerator() -> None:
    wrong = mistake_with(accelerators="[V100, T4]", throughput="7")
    assert 'write a map like {"V100": 7}' in wrong


def test_memory_beyond_every_accelerator_names_the_largest() -> None:
    assert job_with(memory="16GiB").memory_gib == 16
    assert "the largest that it accepts is A100 with 40 GiB each" in mistake_with(
        accelerators="[V100, A100]", memory="41GiB"
    )
    assert "tpu-v3-8 with 32 GiB per chip" in mistake_with(accelerators="tpu-v3-8", memory="33GiB")


def test_commands_by_platform() -> None:
    job = job_with(accelerators="[V100, v3-8]", command="{gpu: ./a, tpu: ./b}")
    assert dict(job.commands) == {"gpu": "./a", "tpu": "./b"}
    assert dict(job_with(command="./x $HOME").commands) == {"any": "./x $HOME"}
    assert dict(job_with(accelerators="Trainium", command="{any: ./a}").commands) == {"any": "./a"}


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        (
            {"accelerators": "[V100, v3-8]", "command": "{gpu: ./a}"},
            "`tpu-v3-8` is accepted but has no `tpu` command",
        ),
        ({"accelerators": "trn1", "command": "{gpu: ./a}"}, "has no `any` command"),
        ({"command": "[python, train.py]"}, "expected one shell command as text, got a list"),
        ({"command": "''"}, "`command` is empty"),
        ({"command": "{gpus: ./a, gpu: ./b}"}, "unknown key `gpus`; did you mean `gpu`?"),
    ],
)
def test_commands_refused(fields: dict[str, str], part: str) -> None:
    assert part in mistake_with(**fields)


def test_deadlines_are_spans_or_instants() -> None:
    assert job_with(deadline="24h").deadline_s == 86400
    assert job_with(deadline="12:30:00").deadline_s == 45000
    job = job_with(deadline="2026-12-01T12:00:00Z")
    assert job.deadline_s is None
    assert job.deadline_at_s == NOW_S + 2 * 86400
    assert job_with(deadline="null").deadline_s is None


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (
            "6pm",
            'expected a duration like 24h or an instant like 2026-12-01T12:00:00Z, got "6pm"',
        ),
        ("24", "the unit is missing: write 24s, 24m, 24h or 24d"),
        ("0", "must be more than 0"),
        ("2026-11-29T11:00:00Z", "the deadline is in the past, 1h00m ago"),
        ("2026-12-01T12:00:00", "the time zone is missing"),
        ("2026-03-29T02:30 Europe/Berlin", "this hour does not exist in Europe/Berlin"),
        ("[24h]", "expected one value, got a list"),
    ],
)
def test_deadlines_refused(text: str, part: str) -> None:
    assert part in mistake_with(deadline=text)


def test_a_deadline_before_the_arrival_cannot_be_kept() -> None:
    assert "not later than the arrival at 3h" in mistake_with(deadline="2h", arrives="3h")


def test_checkpoints() -> None:
    plan = job_with(
        checkpoint="{path: out/ckpt/, every: 10m, size: 512MiB, save: 5s, restore: 1m}"
    ).checkpoint
    assert (plan.path, plan.every_s, plan.size_gib) == ("out/ckpt", 600, 0.5)
    assert (plan.save_s, plan.restore_s) == (5, 60)
    assert job_with(checkpoint="{every: auto}").checkpoint.every_s is None
    assert job_with(checkpoint="saves/").checkpoint.path == "saves"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{path: /abs}", "inside the job's workdir"),
        ("{path: ../up}", "inside the job's workdir"),
        ("{path: .}", "a directory of their own"),
        ("{every: 0s}", "must be more than 0"),
        ("{evry: 5m}", "unknown key `evry`; did you mean `every`?"),
        ("[a]", "expected a map"),
    ],
)
def test_checkpoints_refused(text: str, part: str) -> None:
    assert part in mistake_with(checkpoint=text)


def test_progress_is_a_pattern_with_one_group() -> None:
    assert job_with(progress="'step ([0-9]+)$'").progress_pattern == "step ([0-9]+)$"
    assert "got 0 groups" in mistake_with(progress="'step [0-9]+'")
    assert "got 2 groups" in mistake_with(progress="'(step) ([0-9]+)'")
    assert "not a regular expression" in mistake_with(progress="'step ('")


def test_yaml_traps_stay_text() -> None:
    job = job_with(env="{A: no, B: 1e-3, C: 12:30:00, D: 010, E: , F: ~, G: 'null'}")
    assert dict(job.env) == {
        "A": "no",
        "B": "1e-3",
        "C": "12:30:00",
        "D": "010",
        "E": "",
        "F": "",
        "G": "null",
    }


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"steps": "0"}, "the steps must be at least 1"),
        ({"steps": "-5"}, "the steps must be at least 1"),
        ({"steps": ".nan"}, "expected a number of steps"),
        ({"weight": "0"}, "the weight must be more than 0"),
        ({"weight": ".nan"}, "expected a number"),
        ({"max_cost": "0"}, "the cost must be more than 0"),
        ({"max_duration": "0s"}, "the duration must be more than 0"),
        ({"retries": "-1"}, "the retries must be between 0 and 1000"),
        ({"spot_only": "perhaps"}, "expected true or false"),
        ({"env": "{1A: x}"}, "is not the name of an environment variable"),
        ({"env": "{CLOUDGAVEL_X: x}"}, "is set by cloudgavel itself"),
        ({"env": "[A=1]"}, "expected a map, got a list"),
        ({"secrets": "[A B]"}, "is not the name of an environment variable"),
        ({"name": "Bert_Large"}, "like bert-large"),
        ({"name": "a" * 64}, "at most 63 characters, got 64"),
        ({"name": "a..b"}, "no two dots"),
        ({"name": "-a"}, "lower-case letters"),
        ({"workdir": "~/x"}, "HOME is not set"),
        ({"inputs": "['']"}, "expected a text, got nothing"),
        ({"num_workers": "3"}, "unknown key `num_workers`"),
        ({"deadine": "3h"}, "unknown key `deadine`; did you mean `deadline`?"),
        ({"gpus": "3"}, "unknown key `gpus`; did you mean `accelerators`?"),
        ({"budget": "3"}, "unknown key `budget`; it belongs at the top of the file"),
    ],
)
def test_other_fields_refused(fields: dict[str, str], part: str) -> None:
    assert part in mistake_with(**fields)


def test_other_fields() -> None:
    job = job_with(
        weight="2",
        max_cost="$120",
        max_duration="30h",
        entity="vision",
        arrives="2h",
        spot_only="yes",
        retries="0",
        grace="5s",
        memory="12GiB",
        setup="pip install x",
        image="a/b:c",
        inputs="s3://data",
        secrets="[KEY, KEY]",
        profile="resnet50/bs32",
        workdir="../src",
    )
    assert (job.weight, job.max_cost_usd, job.max_duration_s) == (2, 120, 108000)
    assert (job.entity, job.arrives_s, job.spot_only, job.retries) == ("vision", 7200, True, 0)
    assert (job.grace_s, job.memory_gib, job.setup) == (5, 12, "pip install x")
    assert (job.image, job.inputs, job.secrets) == ("a/b:c", ("s3://data",), ("KEY",))
    assert (job.profile, job.workdir) == ("resnet50/bs32", "/src")
    assert job_with(workdir="~/x", environment={"HOME": "/home/u"}).workdir == "/home/u/x"


def test_what_is_left_out_has_the_documented_default() -> None:
    job = job_with()
    assert (job.workdir, job.weight, job.retries, job.arrives_s) == ("/project", 1, 2, 0)
    assert job.memory_gib is None
    assert dict(job.throughput_steps_per_s) == {}
    assert job.accelerators == (AcceleratorRequest(accelerator="V100"),)


HEAD = """
    version: 1
    name: vision-sweep
    budget: $500
    max_usd_per_hour: 60
    policy: my_module.sub:MyPolicy
    round: 6m
    deadline_margin: 15%
    max_spot_wait: 20m
    clouds:
      aws:
        regions: [us-east-1, us-west-2, us-east-1]
        max_instances: 20
        interruption_queue: https://sqs.us-east-1.amazonaws.com/123456789012/warnings
      gcp: {project: my-project, regions: us-central1}
    store: s3://my-bucket/runs
    notify: [https://hooks.example.org/x]
    rehearsal: {seed: 7, clouds: [aws], interruptions_per_hour: 0.5, boot: 30s}
    jobs:
      - {name: a, command: ./a, steps: 1, accelerators: V100}
"""


def test_the_head_of_the_file() -> None:
    run = read(HEAD)
    assert (run.name, run.budget_usd, run.max_usd_per_hour) == ("vision-sweep", 500, 60)
    assert (run.policy, run.round_s, run.deadline_margin_share) == (
        "my_module.sub:MyPolicy",
        360,
        0.15,
    )
    assert run.max_spot_wait_s == 1200
    assert run.clouds == (
        CloudSpec(
            provider="aws",
            regions=("us-east-1", "us-west-2"),
            max_instances=20,
            interruption_queues=("https://sqs.us-east-1.amazonaws.com/123456789012/warnings",),
        ),
        CloudSpec(provider="gcp", regions=("us-central1",), project="my-project"),
    )
    assert run.rehearsal == RehearsalSpec(
        seed=7, clouds=(CloudSpec(provider="aws"),), interruptions_per_hour=0.5, boot_s=30
    )
    assert (run.store, run.notify) == ("s3://my-bucket/runs", ("https://hooks.example.org/x",))
    assert run.source == "jobs.yaml"


@pytest.mark.parametrize(
    ("head", "part"),
    [
        ("budget: 0", "the budget must be more than $0"),
        ("budget: -5", "the budget must be more than $0"),
        ("budget: .nan", "expected an amount in US dollars"),
        ("version: 2", "reads version 1, got 2"),
        ("round: 6", "the unit is missing"),
        ("deadline_margin: 10", "write 10%"),
        ("max_spot_wait: 20", "the unit is missing"),
        ("polcy: x", "unknown key `polcy`; did you mean `policy`?"),
        ("steps: 3", "unknown key `steps`; it belongs under each job"),
        ("policy: 'a b'", "expected a policy"),
        ("clouds: [azure]", "unknown cloud `azure`; known are aws and gcp"),
        (
            "clouds: {aws: {regions: [us-east-1a]}}",
            "is a zone; did you mean the region `us-east-1`",
        ),
        ("clouds: {gcp: {regions: [us-central1-b]}}", "did you mean the region `us-central1`"),
        ("clouds: {aws: {regions: [Virginia]}}", "expected a region like us-east-1"),
        ("clouds: {aws: {project: x}}", "unknown key `project`"),
        ("clouds: {aws: {interruption_queue: warnings}}", "expected a queue like https://sqs."),
        (
            "clouds: {gcp: {interruption_queue: https://sqs.us-east-1.amazonaws.com/1/q}}",
            "unknown key `interruption_queue`",
        ),
        ("clouds: {aws: {max_instances: 0}}", "max_instances must be between 1"),
        ("clouds: [aws, aws]", "`aws` is given twice"),
        ("cluster: {V100: 0}", "the count must be between 1"),
        ("cluster: {V10: 1}", "did you mean `V100`"),
        ("cluster: {V100: 1, v100: 2}", "`V100` is given twice"),
        ("store: ftp://x", "expected a store like"),
        ("notify: [someone]", "expected an address like https://"),
        ("rehearsal: {sed: 1}", "unknown key `sed`; did you mean `seed`?"),
        ("rehearsal: {interruptions_per_hour: -1}", "the rate must be at least 0"),
        ("rehearsal: {seed: -1}", "the seed must be between 0"),
        ("rehearsal: 3", "expected a map"),
    ],
)
def test_the_head_refused(head: str, part: str) -> None:
    (mistake,) = mistakes_in(a_run(a_job_text(), head=head))
    assert part in mistake
    assert mistake.startswith("jobs.yaml:2:")


def test_clouds_and_a_cluster_exclude_each_other() -> None:
    (mistake,) = mistakes_in(a_run(a_job_text(), head="clouds: [aws]\ncluster: {V100: 8}"))
    assert "not both" in mistake
    assert dict(read(a_run(a_job_text(), head="cluster: {v100: 8}")).cluster or {}) == {"V100": 8}


def test_a_store_may_be_a_path_beside_the_file() -> None:
    assert read(a_run(a_job_text(), head="store: out")).store == "file:///project/out"
