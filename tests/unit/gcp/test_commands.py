"""``cloudgavel check`` and ``reap`` on Google Cloud, alone and beside AWS."""

import json

import pytest

from cloudgavel.cli import cloud_options
from cloudgavel.cli.app import run_command_line
from cloudgavel.cli.commands import check as check_command
from cloudgavel.cli.commands.reap import AwsSweeper, GcpSweeper, sweep
from cloudgavel.errors import CredentialsError
from tests.unit.aws import account as aws
from tests.unit.gcp.project import RUN_ID, a_project, a_request, a_slice, an_offer

US = an_offer()
EU = an_offer(region="europe-west4", zone="europe-west4-a")


@pytest.fixture
def project():
    with a_project(US, EU, a_slice()) as made:
        made.provider = made.another_process(
            settings=aws_free_settings(made), pause=lambda seconds: None
        )
        made.provider.launch(a_request(US, token="1"))
        made.provider.launch(a_request(EU, token="2"))
        made.provider.launch(a_request(a_slice(), token="3", run_id="another"))
        yield made


def aws_free_settings(project):
    from dataclasses import replace

    return replace(project.settings, regions=("us-central1", "europe-west4"))


def sweeper(project, *, regions=(), run_id=None):
    return GcpSweeper(
        project.clients, project=project.cloud.project, regions=regions, run_id=run_id
    )


def swept(project, *sweepers, as_json=True):
    return sweep(sweepers, as_json=as_json, yes=True, sleep=project.advance_s)


def test_machines_and_slices_of_every_zone_are_ended_and_gone(project, capsys):
    assert swept(project, sweeper(project)) == 0
    told = json.loads(capsys.readouterr().out)
    assert {each["where"] for each in told["found"]} == {"us-central1-a", "europe-west4-a"}
    assert {each["run_id"] for each in told["found"]} == {RUN_ID, "another"}
    assert len(told["found"]) == 3
    assert (told["left"], told["silent"]) == ([], [])


def test_only_a_run_or_a_region_when_it_is_named(project, capsys):
    assert swept(project, sweeper(project, regions=["europe-west4"])) == 0
    assert len(json.loads(capsys.readouterr().out)["found"]) == 1
    assert swept(project, sweeper(project, run_id=RUN_ID)) == 0
    assert len(json.loads(capsys.readouterr().out)["found"]) == 1
    assert len(sweeper(project).find().machines) == 1


def test_a_silent_zone_is_told_unless_it_was_not_asked_about(project):
    project.faults.silent_zones.add("europe-west4-a")
    assert len(sweeper(project).find().silent) >= 1
    assert sweeper(project, regions=["us-central1"]).find().silent == ()


def test_google_not_knowing_who_we_are_is_an_error_and_not_an_empty_project(project):
    for operation in ("instances.aggregatedList", "nodes.list", "projects.get"):
        project.faults.refuse_next(operation, 401, "authError", times=3)
    with pytest.raises(CredentialsError):
        sweeper(project).find()


def test_both_clouds_are_swept_at_once_and_one_does_not_hide_the_other(project, capsys):
    with aws.an_account() as account:
        account.provider.launch(aws.a_request(aws.an_offer(), token="1"))
        account.faults.silent_regions.add("us-west-2")
        of_aws = AwsSweeper(account.clients, regions=["us-east-1", "us-west-2"], run_id=None)

        def sleep(seconds):
            account.advance_s(seconds)
            project.advance_s(seconds)

        code = sweep([of_aws, sweeper(project)], as_json=True, yes=True, sleep=sleep)
    told = json.loads(capsys.readouterr().out)
    assert code == 6
    assert {each["provider"] for each in told["found"]} == {"aws", "gcp"}
    assert len(told["found"]) == 4
    assert told["left"] == []
    assert len(told["silent"]) == 1


@pytest.fixture
def nobody(monkeypatch, tmp_path):
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.parametrize("command", [["check"], ["reap", "--yes"]])
def test_without_a_project_it_is_said_how_to_name_one(command, nobody, capsys):
    assert run_command_line([*command, "--provider", "gcp"]) == 2
    assert "GOOGLE_CLOUD_PROJECT" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["check"], ["reap", "--yes"]])
def test_without_credentials_the_exit_code_is_four(command, nobody, monkeypatch, capsys):
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "mine")
    code = run_command_line([*command, "--provider", "gcp", "--region", "us-central1"])
    said = capsys.readouterr()
    assert code == 4
    assert "credentials" in said.out + said.err


def test_a_region_that_is_not_google_s_is_a_usage_error(nobody, capsys):
    command = ["check", "--provider", "gcp", "--project", "mine", "--region", "us-centrall"]
    assert run_command_line(command) == 2
    assert "did you mean `us-central" in capsys.readouterr().err


def test_check_looks_at_every_cloud_of_a_file(nobody, monkeypatch, tmp_path, capsys):
    from cloudgavel.documents.check import CheckLine, CheckStatus

    looked = {}

    def looking(cloud, offers):
        looked[cloud.provider] = (cloud.regions, cloud.project)
        return [
            CheckLine(
                provider=cloud.provider,
                region=None,
                subject="credentials",
                status=CheckStatus.PASSED,
                detail="me",
                hint=None,
            )
        ]

    monkeypatch.setattr(check_command, "_check_aws", looking)
    monkeypatch.setattr(check_command, "_check_gcp", looking)
    file = tmp_path / "jobs.yaml"
    file.write_text(
        "version: 1\nname: two\nclouds:\n  aws: {regions: [us-east-1]}\n"
        "  gcp: {project: mine, regions: [us-central1]}\n"
        "jobs:\n  - {name: a, command: sh a.sh, steps: 10, accelerators: [T4]}\n"
    )
    assert run_command_line(["check", str(file)]) == 0
    assert looked == {"aws": (("us-east-1",), None), "gcp": (("us-central1",), "mine")}
    looked.clear()
    assert run_command_line(["check", str(file), "--region", "us-west1"]) == 0
    assert looked == {"gcp": (("us-west1",), "mine")}


def test_check_says_how_machines_of_the_other_cloud_would_reach_the_store(
    nobody, monkeypatch, tmp_path, capsys
):
    for name in ("_check_aws", "_check_gcp"):
        monkeypatch.setattr(check_command, name, lambda cloud, offers: [])
    monkeypatch.setattr(check_command, "check_store", lambda store: [])
    monkeypatch.delenv("CLOUDGAVEL_AWS_STORE_ROLE", raising=False)
    file = tmp_path / "jobs.yaml"
    file.write_text(
        "version: 1\nname: two\nstore: s3://bucket/runs/two\nclouds:\n"
        "  aws: {regions: [us-east-1]}\n  gcp: {project: mine, regions: [us-central1]}\n"
        "jobs:\n  - {name: a, command: sh a.sh, steps: 10, accelerators: [T4]}\n"
    )
    assert run_command_line(["check", str(file)]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "CLOUDGAVEL_AWS_STORE_ROLE is not set" in said, said
    assert "two-clouds.md" in said


def test_regions_go_to_the_cloud_whose_names_they_are():
    both = ("aws", "gcp")
    assert cloud_options.regions_by_cloud((), both) == {"aws": (), "gcp": ()}
    assert cloud_options.regions_by_cloud(("us-gov-west-1", "us-east1"), both) == {
        "aws": ("us-gov-west-1",),
        "gcp": ("us-east1",),
    }
    assert cloud_options.regions_by_cloud(("us-east-1",), ("gcp",)) == {"gcp": ("us-east-1",)}
