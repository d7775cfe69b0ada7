"""Install commands for extras use the origin of the suite, and no unregistered package name."""

import json
import subprocess
from types import SimpleNamespace

import pytest

from openxla.benchmark import installation


def test_a_checkout_installs_itself():
    assert installation.install_command("gcs,report") == "pip install -e '.[gcs,report]'"


@pytest.mark.parametrize(
    ("recorded", "command"),
    [
        (
            {"url": "https://host/o/r", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "pip install 'common-benchmark-suite[gcs] @ git+https://host/o/r@abc'",
        ),
        (
            {"url": "file:///wheels/suite.whl", "archive_info": {}},
            "pip install 'common-benchmark-suite[gcs] @ file:///wheels/suite.whl'",
        ),
        (None, "pip install 'common-benchmark-suite[gcs]'"),
        ({"url": 3}, "pip install 'common-benchmark-suite[gcs]'"),
    ],
)
def test_a_package_names_its_recorded_origin(monkeypatch, recorded, command):
    text = None if recorded is None else json.dumps(recorded)
    package = SimpleNamespace(read_text=lambda _: text)
    monkeypatch.setattr(installation, "checkout", lambda: None)
    monkeypatch.setattr(installation.importlib.metadata, "distribution", lambda _: package)
    assert installation.install_command("gcs") == command


@pytest.mark.parametrize(
    ("remote", "origin"),
    [
        ("https://me:secret@host/o/r.git", "git+https://host/o/r.git@"),
        ("ssh://git@host/o/r.git", "git+ssh://git@host/o/r.git@"),
        ("ssh://git@host:2222/o/r.git", "git+ssh://git@host:2222/o/r.git@"),
        ("https://me:secret@host:8443/o/r.git", "git+https://host:8443/o/r.git@"),
        ("/a/folder", None),
        (None, None),
    ],
)
def test_a_checkout_names_its_remote_and_commit_without_credentials(
    tmp_path, monkeypatch, remote, origin
):
    def git(*words):
        identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        done = subprocess.run(
            ["git", "-C", tmp_path, *identity, *words], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "first")
    if remote:
        git("remote", "add", "origin", remote)
    monkeypatch.setattr(installation, "checkout", lambda: tmp_path)
    expected = origin and f"common-benchmark-suite[gcs] @ {origin}{git('rev-parse', 'HEAD')}"
    assert installation.requirement("gcs") == expected
