"""The agent's archive: small, the same each time, and enough by itself."""

import hashlib
import io
import subprocess
import sys
import tarfile

import pytest

from cloudgavel.objects.files import FileStore
from cloudgavel.providers.bundle import agent_bundle, upload_agent


@pytest.fixture(scope="module")
def bundle():
    return agent_bundle(with_s3=True)


def test_the_archive_is_small_and_named_by_its_content(bundle):
    assert len(bundle.data) < 8 << 20
    assert bundle.sha256 == hashlib.sha256(bundle.data).hexdigest()
    assert bundle.key == f"agent/{bundle.sha256}.tar.gz"


def test_the_same_installation_makes_the_same_archive(bundle):
    assert agent_bundle(with_s3=True) == bundle


def test_it_holds_no_controller(bundle):
    with tarfile.open(fileobj=io.BytesIO(bundle.data)) as archive:
        names = archive.getnames()
    assert "cloudgavel/agent/main.py" in names
    assert not [n for n in names if n.startswith(("cloudgavel/providers", "cloudgavel/policies"))]
    assert not [n for n in names if n.startswith("botocore/data/ec2/")]


def test_an_agent_starts_from_the_archive_alone_and_can_speak_to_s3(bundle, tmp_path):
    with tarfile.open(fileobj=io.BytesIO(bundle.data)) as archive:
        archive.extractall(tmp_path, filter="data")
    script = (
        "import sys; sys.path[:0] = [sys.argv[1]]\n"
        "import cloudgavel.agent.main, cloudgavel.training\n"
        "from cloudgavel.objects.open import open_store\n"
        "store = open_store('s3://bucket/run')\n"
        "print(store._s3().meta.service_model.service_name)\n"
        "import tenacity, botocore\n"
        "print(all(m.__file__.startswith(sys.argv[1]) for m in (cloudgavel, tenacity, botocore)))\n"
    )
    # -S and -I: nothing of this environment but the standard library.
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["s3", "True"]


def test_it_is_put_into_the_store_once(bundle, tmp_path):
    store = FileStore(tmp_path / "store")
    source = upload_agent(store, bundle)
    assert source.sha256 == bundle.sha256
    assert source.url == f"{store.url}/{bundle.key}"
    assert upload_agent(store, bundle) == source
    assert [each.key for each in store.list("agent/")] == [bundle.key]
