"""Where things lie in the run's store; every key is made here."""


def orders_key(instance_id: str) -> str:
    """Key of the controller's orders to an instance."""
    return f"instances/{instance_id}/orders.json"


def report_key(instance_id: str) -> str:
    """Key of an instance's report to the controller."""
    return f"instances/{instance_id}/report.json"


def lease_key() -> str:
    """Key of the controller's sign of life, one for the whole run."""
    return "controller/lease.json"


def fence_key(job: str) -> str:
    """Key of the lowest attempt that may still commit checkpoints of a job."""
    return f"jobs/{job}/fence.json"


def checkpoints_prefix(job: str) -> str:
    """Prefix of every checkpoint of a job."""
    return f"jobs/{job}/checkpoints/"


def checkpoint_prefix(job: str, step: int, attempt: int) -> str:
    """Prefix of one checkpoint."""
    return f"{checkpoints_prefix(job)}step-{step:012d}/attempt-{attempt:06d}/"


def manifest_key(job: str, step: int, attempt: int) -> str:
    """Key of the manifest that makes a checkpoint valid; written last."""
    return checkpoint_prefix(job, step, attempt) + "MANIFEST.json"


def log_key(job: str, attempt: int) -> str:
    """Key (prefix) of an attempt's log chunks."""
    return f"jobs/{job}/logs/attempt-{attempt:06d}/"
