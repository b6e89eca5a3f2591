"""The command line starts without the heavy libraries, and quickly."""

import subprocess
import sys

HEAVY = ("cvxpy", "boto3", "botocore", "google", "pandas", "numpy", "scipy", "sqlalchemy", "rich")


def test_the_command_line_loads_no_heavy_library():
    code = f"import sys, cloudgavel.cli.app\nprint([m for m in {HEAVY!r} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_help_loads_no_command():
    code = (
        "import sys\n"
        "from cloudgavel.cli.app import run_command_line\n"
        "run_command_line(['--help'])\n"
        "print([m for m in sys.modules if m.startswith('cloudgavel.cli.commands.')])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip().splitlines()[-1] == "[]"


def test_policy_types_and_mechanism_types_load_without_a_solver():
    code = (
        "import sys\n"
        "import cloudgavel.policies.problem, cloudgavel.policies.allocation\n"
        "import cloudgavel.policies.base, cloudgavel.mechanism.state, cloudgavel.mechanism.plan\n"
        "print([m for m in ('cvxpy', 'scipy', 'highspy') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
