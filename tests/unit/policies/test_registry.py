"""Policies by name."""

import subprocess
import sys
from pathlib import Path

import pytest

from cloudgavel.errors import UsageError
from cloudgavel.policies.base import Policy
from cloudgavel.policies.min_cost import MinCost
from cloudgavel.policies.registry import policies, policy_named, policy_names


def test_all_bundled_policies_say_what_they_are() -> None:
    found = policies()
    assert [policy.name for policy in found] == list(policy_names())
    assert {"min_cost", "min_makespan", "on_demand_only"} <= set(policy_names())
    for policy in found:
        assert isinstance(policy, Policy)
        assert policy.summary and policy.source and "\n" not in policy.summary


def test_a_misspelt_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        policy_named("mincost")
    assert "mincost" in caught.value.message
    assert "did you mean `min_cost`?" in caught.value.hints


def test_anyones_policy_by_module_and_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "thrifty_policies.py").write_text(
        "from cloudgavel.policies.min_cost import MinCost\n"
        "class Thrifty(MinCost):\n"
        "    name = 'thrifty'\n"
        "class Nothing: pass\n"
        "class Needy(MinCost):\n"
        "    def __init__(self, what): pass\n"
        "ready = Thrifty()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert policy_named("thrifty_policies:Thrifty").name == "thrifty"
    assert isinstance(policy_named("thrifty_policies:ready"), MinCost)
    for path, words in (
        ("thrifty_policies:Thrify", "has no"),
        ("thrifty_policies:Nothing", "is not a policy"),
        ("thrifty_policies:Needy", "cannot be made"),
        ("no_such_module:Thrifty", "cannot be loaded"),
        (":Thrifty", "does not name"),
    ):
        with pytest.raises(UsageError) as caught:
            policy_named(path)
        assert words in caught.value.message


def test_listing_names_loads_no_solver() -> None:
    code = (
        "import sys; from cloudgavel.policies.registry import policy_names; policy_names();"
        "print(sorted({'cvxpy', 'highspy', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
