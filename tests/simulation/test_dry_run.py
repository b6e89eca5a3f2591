"""A plan on clouds is tried on mocked ones: real provider code, no credentials, no way out."""

import json
import socket
from dataclasses import replace

import pytest

from cloudgavel.cli.app import run_command_line
from cloudgavel.documents.encode import as_json
from cloudgavel.jobs.spec import AcceleratorRequest, CloudSpec, JobSpec, RunSpec
from cloudgavel.pricing.bundled import bundled_catalog
from cloudgavel.pricing.offer import CapacityType
from cloudgavel.providers.failures import FailureKind, LaunchFailed
from cloudgavel.providers.offline import WouldLeaveThisMachine, loopback_only
from cloudgavel.runtime.assemble import rehearsal_offers
from cloudgavel.simulator import dry_run
from cloudgavel.simulator.dry_run import mocked_clouds, plain
from cloudgavel.simulator.plan import plan_run

START_S = 1_790_000_000.0


def a_job(name, accelerator, **changes):
    fields = {
        "name": name,
        "commands": {"any": "python train.py"},
        "steps_total": 7200,
        "accelerators": (AcceleratorRequest(accelerator=accelerator),),
        "throughput_steps_per_s": {accelerator: 1.0},
        "deadline_s": 12 * 3600.0,
    }
    return JobSpec(**(fields | changes))


RUN = RunSpec(
    name="two",
    jobs=(a_job("on-aws", "A10G"), a_job("on-gcp", "tpu-v5litepod-4")),
    clouds=(
        CloudSpec(provider="aws", regions=("us-east-1",)),
        CloudSpec(provider="gcp", regions=("us-central1",), project="mine"),
    ),
    store="s3://bucket/runs/two",
)


def planned(run=RUN, *, change=lambda dry: None, **options):
    with mocked_clouds(run, catalog=bundled_catalog(), environment={}, start_at_s=START_S) as dry:
        change(dry)
        return plan_run(
            run, budget_usd=500.0, now_s=START_S, dry=dry, **{"show_calls": True, **options}
        )


@pytest.fixture(scope="module")
def plan():
    return planned()


def operations(plan, *wanted):
    return [call for call in plan.calls if call.operation in wanted]


def test_every_machine_of_the_plan_was_asked_of_its_cloud_and_given_back(plan):
    assert plan.feasible
    rented = operations(plan, "RunInstances", "create_node", "insert_unary")
    ended = operations(plan, "TerminateInstances", "delete_node", "delete_unary")
    assert {call.provider for call in rented} == {"aws", "gcp"}
    assert len(rented) >= len(plan.jobs)
    assert len(ended) == len(rented)
    assert plan.call_count == len(plan.calls)
    assert [call.at_s for call in plan.calls] == sorted(call.at_s for call in plan.calls)
    assert max(call.at_s for call in ended) > 3600.0


def test_the_calls_are_json_without_start_scripts_in_full(plan):
    text = json.dumps(as_json(plan))
    (launch, *_) = operations(plan, "RunInstances")
    assert launch.region == "us-east-1"
    assert launch.parameters["MetadataOptions"]["HttpTokens"] == "required"
    assert launch.parameters["UserData"].endswith("characters>")
    assert "#!/" not in text


def test_the_mocks_change_no_plan(plan):
    sold = [call for call in plan.calls if call.operation == "DescribeInstanceTypeOfferings"]
    assert sold
    bare = plan_run(
        RUN,
        budget_usd=500.0,
        now_s=START_S,
        offers=[
            offer for offer in rehearsal_offers(RUN, bundled_catalog()) if not offer.is_historic
        ],
    )
    assert bare.cost == plan.cost
    assert bare.jobs == plan.jobs
    assert (bare.call_count, bare.calls) == (None, None)


def test_a_store_that_a_cloud_cannot_reach_is_told(plan):
    (note,) = [note for note in plan.notes if note.startswith("gcp:")]
    assert "CLOUDGAVEL_AWS_STORE_ROLE" in note
    assert not [note for note in plan.notes if note.startswith("aws:")]


def test_without_moto_it_is_said_that_the_calls_were_not_made(monkeypatch):
    monkeypatch.setattr(dry_run.importlib.util, "find_spec", lambda name: None)
    run = replace(RUN, jobs=RUN.jobs[:1], clouds=RUN.clouds[:1])
    plan = planned(run)
    assert plan.feasible
    assert plan.calls == ()
    assert any("moto is not installed" in note for note in plan.notes)


def test_where_the_account_has_no_quota_for_spot_the_plan_goes_on_demand():
    from cloudgavel.providers.aws.quotas import VcpuLimit

    def no_spot(dry):
        provider = dry.clouds["aws"]
        provider._limits["us-east-1"] = (
            START_S + 1e9,
            [
                VcpuLimit(
                    region="us-east-1",
                    title="All G and VT Spot Instance Requests",
                    code="L-3819A6DF",
                    vcpus=0.0,
                    families=("g", "vt"),
                    capacity_type=CapacityType.SPOT,
                )
            ],
        )

    run = replace(RUN, jobs=RUN.jobs[:1], clouds=RUN.clouds[:1])
    plan = planned(run, change=no_spot)
    assert plan.feasible
    assert {segment.capacity_type for job in plan.jobs for segment in job.segments} == {"on_demand"}


def test_what_a_cloud_would_refuse_is_told_and_something_else_is_rented():
    refused = []

    def no_spot(dry):
        provider = dry.clouds["aws"]
        launch = provider.launch

        def judged(request):
            if request.offer.capacity_type is CapacityType.SPOT:
                refused.append(request.offer.offer_id)
                raise LaunchFailed(
                    FailureKind.INVALID, "no such thing", offer_id=request.offer.offer_id
                )
            return launch(request)

        provider.launch = judged

    job = replace(RUN.jobs[0], deadline_s=3 * 3600.0)
    plan = planned(replace(RUN, jobs=(job,), clouds=RUN.clouds[:1]), change=no_spot)
    assert refused
    assert any("would be refused: no such thing" in note for note in plan.notes)
    assert plan.jobs[0].deadline_met
    assert {segment.capacity_type for segment in plan.jobs[0].segments} == {"on_demand"}


def test_a_limit_of_the_file_binds_the_plan():
    jobs = tuple(a_job(f"job-{n}", "A10G") for n in range(2))
    clouds = (replace(RUN.clouds[0], max_instances=1),)
    plan = planned(replace(RUN, jobs=jobs, clouds=clouds))
    assert plan.feasible
    assert plan.fleet.peak_instances == 1


def test_while_the_mocks_are_open_nothing_leaves_this_machine():
    with loopback_only():
        with pytest.raises(WouldLeaveThisMachine, match="example"):
            socket.getaddrinfo("example.org", 443)
        with (
            socket.socket(socket.AF_INET) as outward,
            pytest.raises(WouldLeaveThisMachine, match="192"),
        ):
            outward.connect(("192.0.2.1", 443))
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname()).close()
    assert socket.getaddrinfo("127.0.0.1", 80)


def test_long_values_are_told_by_their_size():
    shown = plain({"a": "x" * 500, "b": b"123", "c": (1, None, True), "d": object()})
    assert shown == {
        "a": "<500 characters>",
        "b": "<3 bytes>",
        "c": [1, None, True],
        "d": "<object>",
    }


def test_the_command_plans_both_clouds_without_credentials(monkeypatch, tmp_path, capsys):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / "jobs.yaml"
    (tmp_path / "train.py").write_text("")
    file.write_text(
        "version: 1\nname: two\nclouds:\n  aws: {regions: [us-east-1]}\n"
        "  gcp: {regions: [us-central1]}\n"
        "jobs:\n  - {name: a, command: python train.py, steps: 3600, accelerators: [T4],"
        " throughput: {T4: 1.0}, deadline: 10h}\n"
    )
    command = ["plan", str(file), "--budget", "50", "--markets", "2"]
    assert run_command_line([*command, "--json", "--show-calls"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["markets"] == 2
    assert document["cost"]["p05_usd"] <= document["cost"]["p95_usd"]
    assert document["jobs"][0]["deadline_probability"] == 1.0
    assert document["calls"]
    assert any("clouds.gcp.project" in note for note in document["notes"])
    assert run_command_line([*command, "--markets", "0"]) == 0
    text = capsys.readouterr().out
    assert "made of mocked clouds" in text
    assert "simulated markets" not in text
