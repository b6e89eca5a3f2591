"""`cloudgavel validate`: what a plan would stumble over is a mistake already."""

import pytest

from cloudgavel.cli.app import run_command_line

FILE = """\
version: 1
name: t
policy: {policy}
clouds: {{aws: {{regions: [{region}]}}}}
jobs:
  - name: a
    command: sleep 1
    steps: 100
    accelerators: {{V100: 1}}
    throughput: {{V100: 1}}
"""


@pytest.mark.parametrize(
    ("policy", "region", "told"),
    [
        ("min_costt", "us-east-1", "there is no policy `min_costt`; did you mean `min_cost`?"),
        ("min_cost", "us-east-11", "no price is known in `us-east-11`; did you mean `us-east-1`?"),
    ],
)
def test_names_that_there_are_not_are_mistakes(policy, region, told, tmp_path, capsys):
    file = tmp_path / "jobs.yaml"
    file.write_text(FILE.format(policy=policy, region=region))
    assert run_command_line(["validate", str(file)]) == 2
    assert told in " ".join(capsys.readouterr().err.split())


def test_names_that_there_are_pass(tmp_path, capsys):
    file = tmp_path / "jobs.yaml"
    file.write_text(FILE.format(policy="min_cost", region="us-east-1"))
    assert run_command_line(["validate", str(file)]) == 0
    assert "no mistakes" in capsys.readouterr().out
