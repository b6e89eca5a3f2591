import json

from click.testing import CliRunner

from cloudgavel.cli.commands.policies import policies
from cloudgavel.policies.registry import policy_names


def test_lists_every_policy_with_its_source():
    text = CliRunner().invoke(policies, []).output
    assert "for a rented fleet:" in text and "for a fixed cluster:" in text
    assert "max_min_fairness" in text and "OSDI 2020" in text
    assert all(len(line) <= 100 for line in text.splitlines())
    # A twin is named under its original.
    assert "also as fifo + _agnostic, _space_sharing" in text
    listed = {line.strip() for line in text.splitlines()}
    for name in policy_names():
        if not name.endswith(("_agnostic", "_space_sharing")):
            assert name in listed


def test_json_has_the_same_and_all_names():
    found = json.loads(CliRunner().invoke(policies, ["--json"]).output)
    assert found["schema"] == "cloudgavel/policies"
    assert [each["name"] for each in found["policies"]] == list(policy_names())
    assert all(each["summary"] and each["source"] for each in found["policies"])
    twin = next(each for each in found["policies"] if each["name"] == "makespan_agnostic")
    assert twin["variant_of"] == "makespan" and twin["plans_for"] == "fixed cluster"
    rented = {each["name"] for each in found["policies"] if each["plans_for"] == "rented fleet"}
    assert "min_cost" in rented and "max_min_fairness" not in rented
