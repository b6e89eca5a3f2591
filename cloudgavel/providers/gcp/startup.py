"""The script that a fresh machine runs: its own end first, then the agent.

It needs a shell, curl and Python 3.11 or later. Nothing secret is in it: metadata can be read from
inside.
"""

import shlex
from urllib.parse import quote, urlsplit

from cloudgavel.providers.gcp.settings import GcpSettings
from cloudgavel.providers.store_access import fetching_program, is_elsewhere

MOST_BYTES = 16_384
"""Google takes 256 KB; the narrowest bound of the clouds serves for all."""
SCRATCH = "/var/lib/cloudgavel"
OWN_ALLOWANCE_S = 300.0
"""The machine's timer lets the agent save and end first."""
STORAGE_URL = "https://storage.googleapis.com"
COMPUTE_URL = "https://compute.googleapis.com"
TPU_URL = "https://tpu.googleapis.com"

_TEMPLATE = """\
#!/bin/bash
# cloudgavel: start the agent of one machine.
set -u
RUN_ID={run_id}
INSTANCE_ID={instance_id}
STORE_URL={store_url}
AGENT_URL={agent_url}
AGENT_SHA256={agent_sha256}
LIFETIME_S={lifetime_s}
POWER_OFF_MINUTES={power_off_minutes}
SCRATCH="${{CLOUDGAVEL_SCRATCH:-{scratch}}}"
METADATA="http://${{GCE_METADATA_HOST:-metadata.google.internal}}/computeMetadata/v1"
HOME="${{HOME:-/root}}"; export HOME SCRATCH METADATA

# The end of the machine does not depend on anything below; the cloud's own timer comes after it.
# It deletes itself if its account may, which ends the bill of its disk and of a TPU slice too.
mkdir -p "$SCRATCH" && cd "$SCRATCH" || shutdown -h now
cat >token.sh <<'END'
curl -sf -m 5 -H 'Metadata-Flavor: Google' "$METADATA/instance/service-accounts/default/token" |
  sed -n 's/.*"access_token" *: *"\\([^"]*\\)".*/\\1/p'
END
cat >end.sh <<END
export METADATA="$METADATA"
curl -sf -m 20 -X DELETE -H "Authorization: Bearer \\$(bash '$SCRATCH/token.sh')" {self_url}
shutdown -h now
END
shutdown -h "+$((POWER_OFF_MINUTES + 5))"
systemd-run --on-active="${{POWER_OFF_MINUTES}}m" /bin/bash "$SCRATCH/end.sh" ||
  shutdown -h "+$POWER_OFF_MINUTES"
STARTED_AT_S=$(date +%s)
say() {{ echo "cloudgavel: $1" | tee -a "$SCRATCH/start.log"; }}
give_up() {{ say "$1"; bash "$SCRATCH/end.sh"; exit 1; }}

# After a restart of the machine this runs again; two agents must not.
exec 9>start.lock; flock -n 9 || exit 0

find_python() {{
  for each in python3.14 python3.13 python3.12 python3.11 python3 /opt/conda/bin/python3; do
    if "$each" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$each"; return 0
    fi
  done
  return 1
}}
PYTHON=$(find_python) || {{
  {{ apt-get update -q && apt-get install -y -q python3.11; }} >/dev/null 2>&1
  PYTHON=$(find_python) || give_up "no Python 3.11 or later"
}}

{keyless}for pause in 1 2 4 8 16 32 64 128; do
  case "$AGENT_URL" in
    s3://*) "$PYTHON" keyless.py "$STORE_URL" "$AGENT_URL" agent.tar.gz ;;
    {storage_url}/*)
      curl -sf -m 300 -H "Authorization: Bearer $(bash token.sh)" -o agent.tar.gz "$AGENT_URL" ;;
    *) curl -sf -m 300 -o agent.tar.gz "$AGENT_URL" ;;
  esac && echo "$AGENT_SHA256  agent.tar.gz" | sha256sum --check --status && FETCHED=1 && break
  sleep "$pause"
done
[ "${{FETCHED:-}}" = 1 ] || give_up "the agent could not be fetched"
mkdir -p agent && tar -xzf agent.tar.gz -C agent || give_up "the agent cannot be unpacked"

PYTHONPATH="$SCRATCH/agent" "$PYTHON" -m cloudgavel.agent --store "$STORE_URL" --run "$RUN_ID" \\
  --instance "$INSTANCE_ID" --scratch "$SCRATCH/work" --cloud gcp \\
  --power-off-at "$((STARTED_AT_S + LIFETIME_S))" >>agent.log 2>&1 9>&-
give_up "the agent ended with $?"
"""


def start_script(
    settings: GcpSettings,
    *,
    run_id: str,
    instance_id: str,
    zone: str,
    is_tpu: bool,
    endpoint: str | None = None,
) -> str:
    """Return the start-up script of one machine; equal inputs, equal scripts.

    ``endpoint`` stands for all of Google's addresses (a fake cloud).
    """
    power_off_s = settings.lifetime_s + OWN_ALLOWANCE_S
    storage_url = (endpoint or STORAGE_URL).rstrip("/")
    return _TEMPLATE.format(
        run_id=shlex.quote(run_id),
        instance_id=shlex.quote(instance_id),
        store_url=shlex.quote(settings.store_url),
        agent_url=shlex.quote(download_url(settings.agent.url, storage_url=storage_url)),
        agent_sha256=shlex.quote(settings.agent.sha256),
        lifetime_s=int(settings.lifetime_s),
        power_off_minutes=max(1, int(power_off_s // 60)),
        scratch=SCRATCH,
        storage_url=storage_url,
        self_url=shlex.quote(
            _self_url(
                settings, instance_id=instance_id, zone=zone, is_tpu=is_tpu, endpoint=endpoint
            )
        ),
        keyless=fetching_program() if is_elsewhere(settings.store_url) else "",
    )


def download_url(url: str, *, storage_url: str = STORAGE_URL) -> str:
    """``gs://bucket/a/b`` -> the address at which the storage interface gives its bytes."""
    parts = urlsplit(url)
    if parts.scheme != "gs":
        return url
    name = quote(parts.path.lstrip("/"), safe="")
    return f"{storage_url}/storage/v1/b/{parts.netloc}/o/{name}?alt=media"


def _self_url(
    settings: GcpSettings, *, instance_id: str, zone: str, is_tpu: bool, endpoint: str | None
) -> str:
    """Return what to ``DELETE`` to end this very machine."""
    if not is_tpu:
        base = (endpoint or COMPUTE_URL).rstrip("/")
        return f"{base}/compute/v1/projects/{settings.project}/zones/{zone}/instances/{instance_id}"
    base = (endpoint or TPU_URL).rstrip("/") + f"/v2/projects/{settings.project}/locations/{zone}"
    if settings.tpu_queue_wait_s is not None:
        return f"{base}/queuedResources/{instance_id}?force=true"
    return f"{base}/nodes/{instance_id}"
