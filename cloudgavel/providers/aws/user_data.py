"""The script that a fresh machine runs: its own end first, then the agent.

It needs nothing but a shell, Python 3.11 or later, and the AWS command line (on every Deep
Learning image), a presigned URL, or a store in Google's cloud, which it reaches by the machine's
role. Nothing secret is in it: user data can be read from inside.
"""

import shlex

from cloudgavel.providers.aws.settings import AwsSettings
from cloudgavel.providers.store_access import fetching_program, is_elsewhere

MOST_BYTES = 16_384
"""EC2's limit on user data, before base64."""
SCRATCH = "/var/lib/cloudgavel"
BOOT_ALLOWANCE_S = 600.0
"""The machine's own timer lets the agent save and end first."""

_TEMPLATE = """\
#!/bin/bash
# cloudgavel: start the agent of one machine.
set -u
RUN_ID={run_id}
STORE_URL={store_url}
AGENT_URL={agent_url}
AGENT_SHA256={agent_sha256}
LIFETIME_S={lifetime_s}
POWER_OFF_MINUTES={power_off_minutes}
SCRATCH="${{CLOUDGAVEL_SCRATCH:-{scratch}}}"
METADATA="${{AWS_EC2_METADATA_SERVICE_ENDPOINT:-http://169.254.169.254}}/latest"
HOME=/root; export HOME

# The end of the machine does not depend on anything below. A shutdown from inside terminates it.
shutdown -h "+$POWER_OFF_MINUTES" || \\
  systemd-run --on-active="${{POWER_OFF_MINUTES}}m" systemctl poweroff
STARTED_AT_S=$(date +%s)
give_up() {{ echo "cloudgavel: $1" | tee /dev/console; sleep 5; shutdown -h now; exit 1; }}

imds() {{
  curl -sf --retry 10 --retry-connrefused -m 5 -H "X-aws-ec2-metadata-token: $IMDS_TOKEN" \\
    "$METADATA/meta-data/$1"
}}
IMDS_TOKEN=$(curl -sf --retry 10 --retry-connrefused -m 5 -X PUT \\
  -H "X-aws-ec2-metadata-token-ttl-seconds: 21600" "$METADATA/api/token") \\
  || give_up "no instance metadata"
INSTANCE_ID=$(imds instance-id) || give_up "no instance id"
AWS_DEFAULT_REGION=$(imds placement/region); export AWS_DEFAULT_REGION

find_python() {{
  for each in python3.14 python3.13 python3.12 python3.11 python3 /opt/pytorch/bin/python; do
    if "$each" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$each"; return 0
    fi
  done
  return 1
}}
PYTHON=$(find_python) || {{
  (dnf install -y -q python3.11 || {{ apt-get update -q && apt-get install -y -q python3.11; }}) \\
    >/dev/null 2>&1
  PYTHON=$(find_python) || give_up "no Python 3.11 or later"
}}

mkdir -p "$SCRATCH/agent" && cd "$SCRATCH" || give_up "no scratch directory"
{keyless}for pause in 1 2 4 8 16 32 64 128; do
  case "$AGENT_URL" in
    s3://*) aws s3 cp --only-show-errors "$AGENT_URL" agent.tar.gz ;;
    gs://*) "$PYTHON" keyless.py "$STORE_URL" "$AGENT_URL" agent.tar.gz ;;
    *) curl -sf -m 300 -o agent.tar.gz "$AGENT_URL" ;;
  esac && echo "$AGENT_SHA256  agent.tar.gz" | sha256sum --check --status && FETCHED=1 && break
  sleep "$pause"
done
[ "${{FETCHED:-}}" = 1 ] || give_up "the agent could not be fetched from $STORE_URL"
tar -xzf agent.tar.gz -C agent || give_up "the agent's archive cannot be unpacked"

PYTHONPATH="$SCRATCH/agent" "$PYTHON" -m cloudgavel.agent --store "$STORE_URL" --run "$RUN_ID" \\
  --instance "$INSTANCE_ID" --scratch "$SCRATCH/work" --cloud aws \\
  --power-off-at "$((STARTED_AT_S + LIFETIME_S))" >>"$SCRATCH/agent.log" 2>&1
echo "cloudgavel: the agent ended with $?" | tee /dev/console
shutdown -h now
"""


def start_script(settings: AwsSettings, *, run_id: str) -> str:
    """Return the user data of every machine of a run; the same for all, to the letter."""
    power_off_s = settings.lifetime_s + BOOT_ALLOWANCE_S
    return _TEMPLATE.format(
        run_id=shlex.quote(run_id),
        store_url=shlex.quote(settings.store_url),
        agent_url=shlex.quote(settings.agent.url),
        agent_sha256=shlex.quote(settings.agent.sha256),
        lifetime_s=int(settings.lifetime_s),
        power_off_minutes=max(1, int(power_off_s // 60)),
        scratch=SCRATCH,
        keyless=fetching_program() if is_elsewhere(settings.store_url) else "",
    )
