"""Folders that a worker may not see are hidden, or the reason is given."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cbs_test_plugin import BACKEND

from comparative_benchmark.engine.messages import Called
from comparative_benchmark.engine.session import Hidden, Program
from comparative_benchmark.engine.session_pool import SessionPool
from comparative_benchmark.engine.settings import RunSettings
from openxla.benchmark.artifacts.cache import Cache
from openxla.benchmark.devices import HOST_CPU
from openxla.benchmark.installation import ROOT_DIR_VARIABLE


def hidden(folders, then="", before=""):
    """Returns the lines of a process: why nothing is hidden, then the output of `then`."""
    code = (
        "import json, os, sys\nfrom comparative_benchmark.engine.worker import isolation\n"
        f"{before}\nprint(isolation.hide(json.loads(sys.argv[1])), flush=True)\n{then}"
    )
    ran = subprocess.run(
        [sys.executable, "-P", "-c", code, json.dumps(folders)],
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.splitlines()


@pytest.fixture
def root(tmp_path):
    for name in ("a", "b"):
        for kind in ("inputs", "truth"):
            (tmp_path / "workloads" / name / kind).mkdir(parents=True)
            (tmp_path / "workloads" / name / kind / "0.npy").write_text(f"{kind} of {name}")
    return tmp_path / "workloads"


@pytest.fixture(autouse=True)
def _needs_namespaces(tmp_path):
    [reason] = hidden({str(tmp_path): []})
    if reason != "None":
        pytest.skip(f"no user namespaces here: {reason}")


def test_only_what_a_pattern_names_is_visible(root):
    walk = f"print(sorted(f for _, _, files in os.walk({str(root)!r}) for f in files))"
    read = f"print(open({str(root / 'a/inputs/0.npy')!r}).read())"
    lines = hidden({str(root): ["a/inputs"]}, f"{walk}\n{read}")
    assert lines == ["None", "['0.npy']", "inputs of a"]
    assert (root / "a/truth/0.npy").read_text() == "truth of a"


@pytest.mark.parametrize(
    "attempt",
    [
        "open('{root}/a/inputs/0.npy', 'w')",
        "open('{root}/a/truth.npy', 'w')",
        "os.mkdir('{root}/a/truth')",
        "open('/proc/{parent}/root{root}/a/truth/0.npy')",
        "open('/proc/{parent}/cwd/x')",
        "isolation._call('umount2', b'{root}', 2)",
        "isolation._mount('none', '{root}', flags=32 | 4096)",
        "isolation._call('setns', os.open('/proc/{parent}/ns/mnt', os.O_RDONLY), 0)",
        "isolation._enter_namespaces(), isolation._call('umount2', b'{root}', 2)",
    ],
)
def test_the_cover_cannot_be_taken_off(root, attempt):
    tried = attempt.format(root=root, parent=os.getpid())
    then = f"try:\n  {tried}\n  print('done')\nexcept OSError as error:\n  print(type(error))"
    reason, outcome = hidden({str(root): ["a/inputs"]}, then)
    assert reason == "None"
    assert outcome.startswith("<class"), outcome


def test_a_single_file_may_stay_visible_through_a_symbolic_link(root, tmp_path):
    (tmp_path / "link").symlink_to(root)
    then = f"print(open({str(root / 'b/truth/0.npy')!r}).read(), os.listdir({str(root)!r}))"
    lines = hidden({str(tmp_path / "link"): ["b/truth/0.npy"]}, then)
    assert lines == ["None", "truth of b ['b']"]


def test_where_it_is_forbidden_the_process_goes_on_as_it_was(root):
    before = (
        "def refuse(*_, **__):\n  raise PermissionError(1, 'mount: not permitted')\n"
        "isolation._mount = refuse"
    )
    then = f"print(open({str(root / 'a/truth/0.npy')!r}).read(), os.getuid())"
    reason, outcome = hidden({str(root): []}, then, before)
    assert "mount: not permitted" in reason
    assert outcome == f"truth of a {os.getuid()}"


def test_a_measured_worker_sees_no_truth_and_reports_it(root, tmp_path, monkeypatch):
    monkeypatch.setenv(ROOT_DIR_VARIABLE, str(tmp_path))
    settings = RunSettings(device=HOST_CPU)
    for of, visible in ((Hidden.of(root / "a"), ["a"]), (Hidden.of(), ["a", "b"])):
        with SessionPool(folder=tmp_path / "pool", log_dir=tmp_path, hidden=of) as pool:
            session = pool.get("a", settings, BACKEND)
            assert session.truth_not_isolated is None
            seen = session.call(Called, function="os:listdir", arguments={"path": str(root)})
            inside = session.call(
                Called, function="os:listdir", arguments={"path": str(root / "a")}
            )
        assert sorted(seen.value) == visible
        assert inside.value == ["inputs"]


def test_a_published_program_stays_visible_next_to_hidden_truths(tmp_path, monkeypatch):
    monkeypatch.setenv(ROOT_DIR_VARIABLE, str(tmp_path))
    path = Cache().directory / "models" / "bert[1]" / "program.hlo"
    path.parent.mkdir(parents=True)
    path.write_text("HloModule")
    (path.parent / "truth.npz").write_text("truth")
    program = Program(files={"hlo": {path: "0" * 64}}, origin={})
    folders = Hidden.of(Path("a"), program).folders
    then = f"print(os.listdir({str(path.parent)!r}))"
    assert hidden(folders, then) == ["None", "['program.hlo']"]
