"""Faulty scripts: each affects only itself and leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time

import bench_support as support
import pytest
from fault_list import BENCHFILES, RUNS

from comparative_benchmark.interop.milabench import config, phases
from comparative_benchmark.interop.milabench.channel import PREPARE, PhaseOutcome, Wishes
from comparative_benchmark.interop.milabench.workspace import Placement
from comparative_benchmark.results.record import Status
from comparative_benchmark.results.results_file import read_document

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def all_runs(tmp_path_factory):
    """All of them in one run: one after the other into one file."""
    tmp_path = tmp_path_factory.mktemp("faults")
    for name, (main, _) in RUNS.items():
        support.write(tmp_path / name, main)
    for name, (text, _) in BENCHFILES.items():
        support.write(tmp_path / name, benchfile=text)
    lines = {name: ["max_duration: 1"] if "hangs" in name else [] for name in RUNS}
    path = support.configured(
        tmp_path / "all.yaml", **lines, **{n: list[str]() for n in BENCHFILES}
    )
    (tmp_path / "home").mkdir()
    with pytest.MonkeyPatch.context() as patch, support.nothing_outside(tmp_path, "base"):
        patch.setenv("CBS_PLANTED_TOKEN", "secret")
        patch.setenv("HOME", str(tmp_path / "home"))
        code, results = support.run(path, tmp_path / "base")
    return tmp_path, code, results


@pytest.mark.parametrize("name", RUNS)
def test_a_script_costs_itself_alone(all_runs, planted, name):
    if name != "good":
        planted(name)
    result = all_runs[2][name]
    status, said = RUNS[name][1]
    throughput = result.measured.throughput
    told = [str(result.reason), *(note for p in throughput.processes for note in p.notes)]
    assert result.status is status, told
    if name == "network" and any("blocked through proxy variables" in text for text in told):
        # Not every system allows namespaces, and without them attempts are not counted.
        said = "blocked through proxy variables"
    assert any(said in text for text in told), told
    assert (throughput.rate is not None) is (status is Status.OK)
    if status is Status.OK:
        assert throughput.rate == pytest.approx(100.5, abs=0.6)


@pytest.mark.parametrize("name", BENCHFILES)
def test_a_benchfile_costs_itself_alone(all_runs, planted, name):
    planted(name)
    result = all_runs[2][name]
    assert result.status is Status.FAILED
    assert BENCHFILES[name][1] in result.reason


def test_afterwards_nothing_is_left_and_nothing_is_lost(all_runs):
    tmp_path, code, results = all_runs
    assert code == 2  # a wrong output weighs most
    assert support.processes_with("sleep(987)") == []
    assert support.processes_with(str(tmp_path)) == []
    kept = read_document(tmp_path / "base" / "results.json").benchmarks
    assert [r.definition.model for r in kept] == list(results)
    assert len(kept) == len(RUNS) + len(BENCHFILES)
    log = tmp_path / "base" / "runs" / results["flood"].log_file
    assert log.stat().st_size < 17 * 2**20


def test_a_full_disk_ends_prepare(tmp_path, planted):
    planted("a prepare that fills the disk")
    support.write(
        tmp_path / "a", benchfile=support.BENCHFILE, prepare="import time; time.sleep(60)"
    )
    base = tmp_path / "base"
    [bench] = support.installed(config.read(support.configured(tmp_path / "a.yaml", a=[])), base)
    place = Placement(base=base, bench=bench, run_name="prepare")
    outcome = phases.do(PREPARE, place, Wishes(disk_reserve_bytes=2**60))
    assert outcome.status is Status.FAILED
    assert "free disk space in " in outcome.reason


def test_a_link_out_of_the_folder_and_more_than_there_is(tmp_path, planted):
    planted("a link out of the collection", "two machines")
    planted("more processes than the machine can take")
    support.write(tmp_path / "a")
    support.write(tmp_path / "b")
    (tmp_path / "a" / "data").symlink_to("/etc")
    (tmp_path / "shares").mkdir()
    for name in ("benchfile.py", "main.py"):
        (tmp_path / "shares" / name).symlink_to(f"../b/{name}")
    support.write(tmp_path / "many")
    many = ["plan: {method: njobs, n: 100000}"]
    lines = {"a": [], "b": ["num_machines: 2"], "shares": [], "many": many}
    path = support.configured(tmp_path / "c.yaml", **lines)
    code, results = support.run(path, tmp_path / "base")
    assert code == 1
    assert "links to a path outside its collection" in results["a"].reason
    assert results["shares"].status is Status.OK
    assert results["b"].status is Status.UNSUPPORTED
    assert results["b"].reason == "requires 2 machines"
    assert results["many"].status is Status.UNSUPPORTED
    assert "the plan has 100000 concurrent processes" in results["many"].reason


def test_two_folders_of_one_name_are_two_benchmarks(tmp_path, planted):
    planted("two folders of one name")
    for place, rate in (("x", 100), ("y", 200)):
        support.write(tmp_path / place / "net", f"print(os.getcwd())\nrates([{rate}.0] * 12)")
    path = tmp_path / "c.yaml"
    fields = "inherits: _defaults, install_variant: unpinned, definition:"
    path.write_text("".join(f"of_{place}: {{{fields} {place}/net}}\n" for place in "xy"))
    assert len(config.select(config.read(path), ["net"], [])) == 2
    code, results = support.run(path, tmp_path / "base")
    assert code == 0
    assert [r.measured.throughput.rate for r in results.values()] == [100, 200]
    assert len({r.definition.workload.digest for r in results.values()}) == 2


def test_what_cannot_be_installed_costs_no_other(tmp_path, monkeypatch, capsys, planted):
    planted("a requirement that cannot be installed")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    for name in ("bad", "good"):
        folder = support.write(tmp_path / name)
        (folder / "requirements.in").write_text(
            "a-package-that-is-not-there\n" if name == "bad" else ""
        )
    path = support.configured(tmp_path / "c.yaml", bad=[], good=[])
    base = tmp_path / "base"
    monkeypatch.setattr("comparative_benchmark.interop.milabench.workspace.ALWAYS_INSTALLED", ())
    monkeypatch.setattr(phases, "add_packages", lambda *_: PhaseOutcome())
    assert phases.install(config.read(path), base, variant=None, force=False) == 1
    printed = capsys.readouterr()
    assert "a-package-that-is-not-there" in printed.err
    assert "good: installed" in printed.out
    good = config.select(config.read(path), ["good"], [])
    assert phases.install(good, base, variant=None, force=False) == 0
    assert "already installed" in capsys.readouterr().out
    assert phases.install(good, base, variant=None, force=True) == 0
    assert "installing into" in capsys.readouterr().out
    assert phases.install(good, base, variant="cuda", force=False) == 1
    assert "no requirements.cuda.txt" in capsys.readouterr().err
    (tmp_path / "good" / "requirements.cuda.txt").write_text("")
    assert phases.install(good, base, variant="cuda", force=False) == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_nothing_outlives_the_parent(tmp_path, planted, number):
    planted({9: "a parent that is killed", 2: "Ctrl-C", 15: "SIGTERM"}[number])
    mark = f"import time; time.sleep({900 + number})"
    support.write(
        tmp_path / "a",
        f"""import subprocess, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", {mark!r}], start_new_session=True, env={{}})
print("started", flush=True)
time.sleep(60)""",
    )
    path = support.configured(tmp_path / "a.yaml", a=[])
    base = tmp_path / "base"
    support.installed(config.read(path), base)
    parent = subprocess.Popen(
        [
            *(sys.executable, "-m", "comparative_benchmark", "bench", "run"),
            *("--config", str(path), "--base", str(base)),
        ],
        env={**os.environ},
        stderr=subprocess.PIPE,
    )
    assert _until(lambda: support.processes_with(mark[13:])), "it did not start"
    parent.send_signal(number)
    parent.communicate(timeout=60)
    assert _until(lambda: not support.processes_with(mark[13:])), "it outlived its parent"
    assert _until(lambda: not support.processes_with(str(tmp_path)))
    assert parent.returncode == (-9 if number == signal.SIGKILL else 130)


def _until(condition, patience_s=60):
    end = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
