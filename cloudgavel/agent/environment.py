"""What a job finds in its environment."""

import os
import socket
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path

import cloudgavel
from cloudgavel.agent.process import ATTEMPT_VARIABLE
from cloudgavel.messages.orders import JobOrder


def job_environment(
    order: JobOrder,
    *,
    inherited: Mapping[str, str],
    attempt_dir: Path,
    checkpoint_dir: Path,
    restored_step: int,
    scratch: Path,
    one_machine: bool,
) -> dict[str, str]:
    """Build the variables of one attempt: ours, torchrun's, the accelerators', then the order's.

    ``one_machine``: all members of a gang run on this machine (rehearsal), so rank 0 is at
    127.0.0.1; otherwise at the address that its agent reported, or by its instance id's name.
    """
    env = {name: value for name, value in inherited.items() if not name.startswith("CLOUDGAVEL_")}
    indices = ",".join(str(index) for index in order.accelerator_indices)
    if order.platform == "tpu":
        env |= {
            "CUDA_VISIBLE_DEVICES": "",
            "PJRT_DEVICE": "TPU",
            "TPU_VISIBLE_CHIPS": indices,
            "TPU_VISIBLE_DEVICES": indices,
        }
    else:
        env["CUDA_VISIBLE_DEVICES"] = indices
    addresses = () if one_machine else order.peer_addresses or order.peers
    first_peer = addresses[0] if addresses else "127.0.0.1"
    port = 20_000 + zlib.crc32(f"{order.job}/{order.attempt}".encode()) % 10_000
    env |= {
        "CLOUDGAVEL_JOB": order.job,
        "CLOUDGAVEL_ATTEMPT": str(order.attempt),
        "CLOUDGAVEL_CHECKPOINT_DIR": str(checkpoint_dir),
        "CLOUDGAVEL_RESTORED_STEP": str(restored_step),
        "CLOUDGAVEL_TOTAL_STEPS": str(order.steps_total),
        ATTEMPT_VARIABLE: str(attempt_dir),
        "CLOUDGAVEL_PLATFORM": order.platform,
        "CLOUDGAVEL_RANK": str(order.rank),
        "CLOUDGAVEL_WORLD_SIZE": str(order.world_size),
        "CLOUDGAVEL_PEERS": ",".join(order.peers),
        "RANK": str(order.rank),
        "WORLD_SIZE": str(order.world_size),
        "GROUP_RANK": str(order.rank),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": first_peer,
        "MASTER_PORT": str(port),
        "PYTHONUNBUFFERED": "1",
    }
    beside = Path(sys.executable).parent
    python_at = beside if (beside / "python").exists() else scratch / "bin"
    env["PATH"] = f"{python_at}:{env.get('PATH', os.defpath)}"
    python_path = env.get("PYTHONPATH")
    library = str(scratch / "lib")
    env["PYTHONPATH"] = f"{library}:{python_path}" if python_path else library
    return {**env, **order.env}


def own_address() -> str | None:
    """Return the IP address by which this machine's network knows it; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Any address beyond the own network: the system picks the interface that leads there.
            probe.connect(("203.0.113.1", 9))
        except OSError:
            return None
        return str(probe.getsockname()[0])


def prepare_scratch(scratch: Path) -> None:
    """Make ``bin/python`` (this interpreter) and ``lib/cloudgavel``, which jobs find by path.

    ``lib`` holds cloudgavel and nothing else, for any interpreter: the directory it was imported
    from may be a whole site-packages, which another interpreter must not see. Called once, before
    any job.
    """
    wrapper = scratch / "bin" / "python"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    wrapper.chmod(0o755)
    link = scratch / "lib" / "cloudgavel"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(Path(cloudgavel.__file__).resolve().parent)
