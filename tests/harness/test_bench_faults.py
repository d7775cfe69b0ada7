"""Scripts that do what they should not: each costs itself alone, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time

import bench_support as support
import pytest

from comparative_benchmark.packages.milabench import config, doing, phases
from comparative_benchmark.packages.milabench.phases import PREPARE, Wishes
from comparative_benchmark.packages.milabench.placement import Placement
from comparative_benchmark.results.codec import read_document
from comparative_benchmark.results.record import Status

pytestmark = pytest.mark.slow

# What a script does besides, how it ends, and what is said of it.
RUNS = {
    "garbage": (
        f"""os.write(int(os.environ["DATA_FD"]), b'{{"rate": \\xff\\n[1]\\nnull\\n7\\n')
{support.GOOD}""",
        (Status.OK, "4 x data that is not an event"),
    ),
    "endless_line": (
        f"""os.write(int(os.environ["DATA_FD"]), b"x" * 3_000_000 + b"\\n")
{support.GOOD}""",
        (Status.OK, "1 x data that is not an event"),
    ),
    "flood": (
        f"""for _ in range(300): sys.stdout.write("y" * 100_000 + "\\n")
{support.GOOD}""",
        (Status.OK, ""),
    ),
    "half_escape": (
        f"""{support.GOOD}
sys.stdout.write("\\x1b[7:226") ; sys.stdout.flush()""",
        (Status.OK, "1 x data that is not an event"),
    ),
    "odd_escape": (
        f"""{support.GOOD}
sys.stdout.write("\\x1b[7:2z")""",
        (Status.OK, "1 x data that is not an event"),
    ),
    "bad_rates": (
        f"""rates([-1, 0, float("nan"), float("inf"), "fast", None, True])
{support.GOOD}""",
        (Status.OK, "7 x a rate that is not a positive number"),
    ),
    "backwards": (
        f"""for done in (1, 5, 3, -1, 200): tell(task="train", progress=[done, 100])
{support.GOOD}""",
        (Status.OK, "2 x progress outside of its bounds"),
    ),
    "nan_loss": (
        f"""tell(task="train", loss=1.0); tell(task="train", loss=float("nan"))
{support.GOOD}""",
        (Status.WRONG_OUTPUT, "loss 2 was not a finite number"),
    ),
    "no_rate": ("print('done')", (Status.FAILED, "it told no rate")),
    "exit_3": (
        f"""{support.GOOD}
sys.exit("out of luck")""",
        (Status.FAILED, "exit code 1; its last words: out of luck"),
    ),
    "segfault": ("os.kill(os.getpid(), 11)", (Status.CRASHED, "killed by SIGSEGV")),
    "unsteady": (
        "rates([float(2 ** i) for i in range(16)])",
        (Status.UNSTEADY, "no end of the rates is steady"),
    ),
    "daemon": (
        f"""if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(987)"], {{}})
    os._exit(0)
time.sleep(0.2)
{support.GOOD}""",
        (Status.OK, "1 processes that it left behind were killed"),
    ),
    "network": (
        f"""import socket
try:
    socket.create_connection(("192.0.2.1", 80), timeout=2)
except OSError as error:
    print(error)
{support.GOOD}""",
        (Status.OK, "it tried to reach the network"),
    ),
    "kills_keeper": (
        f"""{support.GOOD}
os.kill(os.getppid(), 9); time.sleep(30)""",
        (Status.FAILED, "its keeper was killed"),
    ),
    "closes_its_pipe": (
        f"""{support.GOOD}
os.close(int(os.environ["DATA_FD"]))""",
        (Status.OK, ""),
    ),
    "sets_the_clock": (
        f"""try:
    time.clock_settime(time.CLOCK_REALTIME, 1e9)
except PermissionError:
    {support.GOOD}""",
        (Status.OK, ""),
    ),
    "writes_results": (
        f"""try:
    open(os.environ["MILABENCH_BASE"] + "/results.json", "w").close()
except OSError as error:
    print(error)
{support.GOOD}""",
        (Status.OK, ""),
    ),
    "stops_late": (
        f"""import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
{support.GOOD}
os.write(int(os.environ["DATA_FD"]), b'{{"$event": "stop"}}\\n')
time.sleep(60)""",
        (Status.OK, ""),
    ),
    "hangs": (f"{support.GOOD}\ntime.sleep(60)", (Status.TIMEOUT, "it took longer than 1 s")),
    "good": (support.GOOD, (Status.OK, "")),
}
BENCHFILES = {
    "raises": ("raise KeyError('x')", "KeyError: 'x'"),
    "no_pack": ("x = 1", "does not set __pack__"),
    "not_python": ("def", "SyntaxError"),
    "exits": ("import sys; sys.exit(9)", "SystemExit: 9"),
    "dies": ("import os; os._exit(7)", "benchfile.py ended with exit code 7"),
    "runs_nothing": (
        """
from milabench.pack import Package
class Idle(Package):
    async def run(self):
        pass
__pack__ = Idle""",
        "its benchfile ran nothing",
    ),
}


@pytest.fixture(scope="module")
def all_runs(tmp_path_factory):
    """All of them in one run: one after the other into one file."""
    tmp_path = tmp_path_factory.mktemp("faults")
    for name, (main, _) in RUNS.items():
        support.write(tmp_path / name, main)
    for name, (text, _) in BENCHFILES.items():
        support.write(tmp_path / name, benchfile=text)
    lines = {name: ["max_duration: 1"] if name == "hangs" else [] for name in RUNS}
    path = support.configured(
        tmp_path / "all.yaml", **lines, **{n: list[str]() for n in BENCHFILES}
    )
    return tmp_path, *support.run(path, tmp_path / "base")


@pytest.mark.parametrize("name", RUNS)
def test_a_script_costs_itself_alone(all_runs, name):
    result = all_runs[2][name]
    status, said = RUNS[name][1]
    throughput = result.measured.throughput
    told = [str(result.reason), *(note for p in throughput.processes for note in p.notes)]
    assert result.status is status, told
    if name == "network" and any("only hidden by proxies" in text for text in told):
        # Not every system allows namespaces, and without them nobody counts.
        said = "only hidden by proxies"
    assert any(said in text for text in told), told
    assert (throughput.rate is not None) is (status is Status.OK)
    if status is Status.OK:
        assert throughput.rate == pytest.approx(100.5, abs=0.6)


@pytest.mark.parametrize("name", BENCHFILES)
def test_a_benchfile_costs_itself_alone(all_runs, name):
    result = all_runs[2][name]
    assert result.status is Status.FAILED
    assert BENCHFILES[name][1] in result.reason


def test_afterwards_nothing_is_left_and_nothing_is_lost(all_runs):
    tmp_path, code, results = all_runs
    assert code == 2  # a wrong output weighs most
    assert support.processes_with("sleep(987)") == []
    kept = read_document(tmp_path / "base" / "results.json").benchmarks
    assert [r.definition.model for r in kept] == list(results)
    assert len(kept) == len(RUNS) + len(BENCHFILES)
    log = tmp_path / "base" / "runs" / results["flood"].log_file
    assert log.stat().st_size < 17 * 2**20
    print(f"{len(RUNS) + len(BENCHFILES)} planted faults of scripts and benchfiles")


def test_a_full_disk_ends_prepare(tmp_path):
    support.write(
        tmp_path / "a", benchfile=support.BENCHFILE, prepare="import time; time.sleep(60)"
    )
    base = tmp_path / "base"
    [bench] = support.installed(config.read(support.configured(tmp_path / "a.yaml", a=[])), base)
    place = Placement(base=base, bench=bench, run_name="prepare")
    outcome = phases.do(PREPARE, place, Wishes(disk_reserve_bytes=2**60))
    assert outcome.status is Status.FAILED
    assert "were left on the disk" in outcome.reason


def test_a_link_out_of_the_folder_and_more_machines_than_one(tmp_path):
    support.write(tmp_path / "a")
    support.write(tmp_path / "b")
    (tmp_path / "a" / "data").symlink_to("/etc")
    (tmp_path / "shares").mkdir()
    for name in ("benchfile.py", "main.py"):
        (tmp_path / "shares" / name).symlink_to(f"../b/{name}")
    path = support.configured(tmp_path / "c.yaml", a=[], b=["num_machines: 2"], shares=[])
    code, results = support.run(path, tmp_path / "base")
    assert code == 1
    assert "is a link out of its collection" in results["a"].reason
    assert results["shares"].status is Status.OK
    assert results["b"].status is Status.UNSUPPORTED
    assert results["b"].reason == "it needs 2 machines"


def test_what_cannot_be_installed_costs_no_other(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    for name in ("bad", "good"):
        folder = support.write(tmp_path / name)
        (folder / "requirements.in").write_text(
            "a-package-that-is-not-there\n" if name == "bad" else ""
        )
    path = support.configured(tmp_path / "c.yaml", bad=[], good=[])
    base = tmp_path / "base"
    monkeypatch.setattr("comparative_benchmark.packages.milabench.venvs.ALWAYS", ())
    monkeypatch.setattr(phases, "add_packages", lambda *_: phases.PhaseOutcome())
    assert doing.install(config.read(path), base, variant=None, force=False) == 1
    printed = capsys.readouterr()
    assert "a-package-that-is-not-there" in printed.err
    assert "good: installed" in printed.out
    good = config.select(config.read(path), ["good"], [])
    assert doing.install(good, base, variant=None, force=False) == 0
    assert "is installed already" in capsys.readouterr().out
    assert doing.install(good, base, variant=None, force=True) == 0
    assert "installing into" in capsys.readouterr().out
    assert doing.install(good, base, variant="cuda", force=False) == 1
    assert "no requirements.cuda.txt" in capsys.readouterr().err
    (tmp_path / "good" / "requirements.cuda.txt").write_text("")
    assert doing.install(good, base, variant="cuda", force=False) == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_nothing_outlives_the_parent(tmp_path, number):
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
    parent.communicate(timeout=30)
    assert _until(lambda: not support.processes_with(mark[13:])), "it outlived its parent"
    assert _until(lambda: not support.processes_with(str(tmp_path)))
    assert parent.returncode == (-9 if number == signal.SIGKILL else 130)


def _until(condition, patience_s=20):
    end = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
