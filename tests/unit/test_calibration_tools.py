"""The parts of the live calibration in `benchmarks/` that do not depend on the machine's speed."""

import contextlib
import importlib
import json
import math
import re
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import attrs
import numpy as np
import psutil
import pytest

from comparative_benchmark.analysis.stats.planning import FixedCounts
from comparative_benchmark.analysis.verification.verification import Verification
from comparative_benchmark.results.outcome import ProcessRecord, TrialOutcome
from comparative_benchmark.results.record import Block, Status
from gpu_check import slow_down

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TOOLS = (
    *("_binomial", "_campaign", "_calibration_report", "_calibration_sections"),
    *("_journal", "_load", "_pairs", "_usual_methods", "aa_calibration", "repeatability"),
)
FRAMEWORKS = {"jax", "torch", "iree", "flax"}
COUNTS = FixedCounts(warmup_iterations=1, iterations=100)
CONFIGURATION = {
    "script": "test",
    "model": "TINY",
    "cpu_model": "a CPU",
    "usable_cpus": 2,
    "system": "Linux 6",
}


@pytest.fixture(scope="module")
def tools():
    """The modules of `benchmarks/`, which is not a package, by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        yield SimpleNamespace(**{name.strip("_"): importlib.import_module(name) for name in TOOLS})


@pytest.mark.slow
def test_the_scripts_import_no_framework(run_python):
    program = "import sys, aa_calibration, repeatability; print(*sys.modules)"
    done = run_python(program, PYTHONPATH=str(BENCHMARKS))
    assert done.stderr == ""
    assert "_pairs" in done.stdout.split()
    assert not FRAMEWORKS & set(done.stdout.split())


# The figures come from scipy.stats.binomtest, method "exact".
@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        (0, 30, 0.0, 0.115703),
        (1, 30, 0.000844, 0.172169),
        (27, 30, 0.734712, 0.978883),
        (30, 30, 0.884297, 1.0),
        (5, 10, 0.187086, 0.812914),
    ],
)
def test_intervals_of_shares_are_the_known_ones(tools, successes, trials, low, high):
    found = tools.binomial.share_interval(successes, trials)
    assert found == pytest.approx((low, high), abs=1e-6)


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5, 0.9])
def test_intervals_of_shares_hold_the_truth_often_enough(tools, share):
    trials, held = 12, 0.0
    for successes in range(trials + 1):
        low, high = tools.binomial.share_interval(successes, trials)
        if low <= share <= high:
            ways = math.comb(trials, successes)
            held += ways * share**successes * (1 - share) ** (trials - successes)
    assert held >= 0.95


@pytest.mark.parametrize(("successes", "trials"), [(0, 0), (2, 1), (-1, 3)])
def test_what_is_no_share_is_refused(tools, successes, trials):
    with pytest.raises(ValueError, match="successes of at least 1 trial"):
        tools.binomial.share_interval(successes, trials)


def test_the_load_is_on_and_off_and_leaves_no_process(tools):
    with tools.load.on_off_load(0.05, 0.05) as pid:
        process = psutil.Process(pid)
        before = process.cpu_times().user
        assert _comes_true(lambda: process.cpu_times().user > before + 0.1)
        assert _comes_true(lambda: process.status() == psutil.STATUS_SLEEPING)
        assert _comes_true(lambda: process.status() == psutil.STATUS_RUNNING)
    assert not psutil.pid_exists(pid)


def test_the_load_ends_with_a_failure_and_with_its_parent(tools, run_python):
    with pytest.raises(KeyError), tools.load.on_off_load(0.05, 0.05) as pid:
        raise KeyError
    assert not psutil.pid_exists(pid)
    program = (
        "import os, _load; load = _load.on_off_load(0.05, 0.05)\n"
        "print(load.__enter__(), flush=True); os._exit(9)"
    )
    done = run_python(program, PYTHONPATH=str(BENCHMARKS))
    assert done.returncode == 9
    assert _comes_true(lambda: not psutil.pid_exists(int(done.stdout)))


def test_as_many_processes_are_busy_as_are_asked_for(tools):
    def children():
        return set(psutil.Process().children())

    before = children()
    with tools.load.busy_processes(2):
        first, second = children() - before
        for process in (first, second):
            assert _comes_true(lambda process=process: process.cpu_times().user > 0.1)
    assert not {first, second} & children()


class FakeClock:
    """Each reading takes a nanosecond."""

    def __init__(self):
        self.now = 0

    def __call__(self):
        self.now += 1
        return self.now


@pytest.mark.parametrize("share", [0.0, 0.03, 0.05])
def test_each_iteration_is_prolonged_by_its_own_share(share):
    clock = FakeClock()

    def call():
        clock.now += took
        return "outputs"

    for took in (1_000_000, 3_000_000, 200_000):
        start = clock.now
        assert slow_down.prolonged(call, share, clock) == "outputs"
        assert clock.now - start == pytest.approx(took * (1 + share), abs=5)


def test_a_slowed_backend_completes_before_it_spins(monkeypatch):
    happened = []

    class Toy:
        def __init__(self, context):
            assert context == "context"

        def dispatch(self):
            happened.append("dispatch")
            return "outputs"

        def synchronize(self, outputs):
            happened.append(f"synchronize {outputs}")

    def prolonged(call, share):
        outputs = call()
        happened.append(f"spin {share}")
        return outputs

    base = ModuleType("toy_backend")
    base.Toy = Toy
    monkeypatch.setitem(sys.modules, base.__name__, base)
    monkeypatch.setenv(slow_down.SHARE_VARIABLE, "0.05")
    monkeypatch.setenv(slow_down.BASE_VARIABLE, "toy_backend:Toy")
    monkeypatch.delitem(sys.modules, "gpu_check.slow_down")
    module = importlib.import_module("gpu_check.slow_down")
    monkeypatch.setattr(module, "prolonged", prolonged)
    slowed = module.SlowedBackend("context")
    assert slowed.dispatch() == "outputs"
    assert happened == ["dispatch", "synchronize outputs", "spin 0.05"]


def test_a_pair_has_two_trials_of_one_workload(tools):
    for section in tools.calibration_sections.SECTIONS:
        pair = tools.aa_calibration.pair_of(section)
        trials = (pair.baseline, pair.candidate)
        assert pair.baseline.key != pair.candidate.key
        assert pair.baseline.workload == pair.candidate.workload
        backends = [trial.competitor.backend for trial in trials]
        shares = [b.environment.get(slow_down.SHARE_VARIABLE) for b in backends]
        if section.slow_down:
            assert shares == ["0.0", str(section.slow_down)]
            bases = [b.environment[slow_down.BASE_VARIABLE] for b in backends]
            assert bases == ["comparative_benchmark.jax_xla.backend:JaxXla"] * 2
        else:
            assert shares == [None, None]
            same = attrs.evolve(backends[0], name=backends[1].name)
            assert same == backends[1]


_RIGHT = Verification(
    passed=True,
    relative_rmse=0.0,
    reference_relative_rmse=0.0,
    allowed_relative_rmse=0.0,
    max_abs_error=0.0,
)


class FakeRace:
    """Gives each trial a process, or six in a race, with its own latency of about 1 ms."""

    speeds: dict[str, float] = {}
    started: list[str] = []

    def __init__(self, trials, artifacts, settings, *, log_file, say):
        self._trials, self._sampling = trials, settings.sampling
        self.outcomes = {}

    def run(self):
        random = np.random.default_rng(1)
        fixed = isinstance(self._sampling, FixedCounts)
        for trial in self._trials:
            name = trial.competitor.backend.name
            self.started.append(name)
            outcome = TrialOutcome(stop_reason="fixed" if fixed else "precision")
            speed = self.speeds[name]
            for _ in range(1 if fixed else 6):
                samples = speed * np.exp(0.005 * random.standard_normal((10, 10)))
                record = ProcessRecord(
                    blocks=[_block(i, row) for i, row in enumerate(samples)],
                    verification=_RIGHT,
                    final_verification=_RIGHT,
                )
                if not speed:
                    record = ProcessRecord(status=Status.FAILED, phase="load", reason="tired")
                outcome.add(record)
            self.outcomes[trial.key] = outcome


@pytest.mark.parametrize(
    ("speed", "verdict"), [(1.05, "slower"), (0.95, "faster"), (0, "incomparable")]
)
def test_a_pair_is_judged_by_each_method(tools, monkeypatch, tmp_path, speed, verdict):
    monkeypatch.setattr(tools.pairs, "Race", FakeRace)
    monkeypatch.setattr(FakeRace, "speeds", {"baseline": 1.0, "candidate": speed})
    monkeypatch.setattr(FakeRace, "started", [])
    pair = tools.aa_calibration.pair_of(tools.calibration_sections.SECTIONS[0])
    found = tools.pairs.judge(
        pair, None, counts=COUNTS, seed=3, load=contextlib.nullcontext(), log_dir=tmp_path
    )
    assert FakeRace.started == ["baseline", "candidate"] * 2
    assert {name: value["verdict"] for name, value in found.items()} == dict.fromkeys(
        ("raced", "mean", "median"), verdict
    )
    assert found["raced"]["processes"] == 6
    assert json.loads(json.dumps(found)) == found
    for value in found.values():
        assert value["ratio"] == (pytest.approx(speed, rel=0.01) if speed else None)
        assert speed or "tired" in value["reason"]


def test_the_t_test_needs_evidence_and_a_difference(tools):
    samples = np.random.default_rng(1).normal(1.0, 0.01, (2, 100))
    verdicts = {
        factor: tools.usual_methods.t_test(samples[0] * factor, samples[1], np.median).value
        for factor in (0.95, 1.0, 1.008, 1.05)
    }
    assert verdicts == {0.95: "faster", 1.0: "unclear", 1.008: "unclear", 1.05: "slower"}
    wide = np.random.default_rng(1).normal(1.0, 0.5, (2, 100))
    assert tools.usual_methods.t_test(wide[0] * 1.05, wide[1], np.mean).value == "unclear"


def test_a_resumed_run_measures_what_is_missing_pair_by_pair(tools, tmp_path):
    path = tmp_path / "deep" / "pairs.jsonl"
    asked = _campaign(tools, path, pairs=1)
    assert asked == [("a", 0), ("b", 0)]
    assert _campaign(tools, path, pairs=3) == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]
    assert _campaign(tools, path, pairs=3) == []
    entries = tools.journal.Journal(path).entries
    assert [(e["section"], e["number"]) for e in entries] == [
        (s, n) for n in range(3) for s in "ab"
    ]
    assert len({e["seed"] for e in entries}) == 6


def test_the_time_limit_leaves_no_section_behind(tools, tmp_path):
    clock = FakeClock()
    budget = tools.campaign.Budget(60.0, clock)

    def spend():
        clock.now += 20

    asked = _campaign(tools, tmp_path / "pairs.jsonl", pairs=30, budget=budget, during=spend)
    # A third one would end after the limit, so it is not started.
    assert asked == [("a", 0), ("b", 0)]


def test_an_interrupted_run_keeps_its_pairs(tools, tmp_path):
    def stop():
        raise KeyboardInterrupt

    path = tmp_path / "pairs.jsonl"
    _campaign(tools, path, pairs=1)
    with pytest.raises(KeyboardInterrupt):
        _campaign(tools, path, pairs=2, during=stop)
    assert len(tools.journal.Journal(path).entries) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"section": "a", "numb', "line 1 is incomplete; remove that line"),
        ('{"section": "a"}', "line 1 is incomplete"),
        ('{"section": "a"}\n', "line 1 is not an entry of these scripts"),
        ("[1]\n", "line 1 is not an entry of these scripts"),
    ],
)
def test_a_file_of_something_else_is_refused(tools, tmp_path, text, message):
    path = tmp_path / "pairs.jsonl"
    path.write_text(text)
    with pytest.raises(tools.journal.JournalError, match=message):
        tools.journal.Journal(path)
    assert path.read_text() == text


def test_other_configurations_do_not_get_into_one_file(tools, tmp_path):
    path = tmp_path / "pairs.jsonl"
    _campaign(tools, path, pairs=1)
    with pytest.raises(tools.journal.JournalError, match="cpu_model a CPU against another"):
        tools.journal.Journal(path).check({**CONFIGURATION, "cpu_model": "another"})
    journal = tools.journal.Journal(path)
    other = _entry("a", 9, raced=_found("same"), usual=_found("same"))
    with pytest.raises(tools.journal.JournalError, match="script test against other"):
        journal.append({**other, "configuration": {**CONFIGURATION, "script": "other"}})
    assert len(path.read_text().splitlines()) == len(journal.entries) == 2


def test_the_report_counts_verdicts(tools, tmp_path, capsys, monkeypatch):
    lines = {
        "A/A, 2 busy processes": ["same"] * 57 + ["faster", "faster", "unclear"],
        "A/A, quiet": ["unclear"] * 30,
        "3% slower, quiet": ["slower"] * 57 + ["unclear", "incomparable", "faster"],
    }
    path = tmp_path / "pairs.jsonl"
    journal = tools.journal.Journal(path)
    for section, verdicts in lines.items():
        for number, verdict in enumerate(verdicts):
            journal.append(_entry(section, number, raced=_found(verdict), usual=_found("slower")))
    monkeypatch.setattr(sys, "argv", ["aa_calibration.py", "--report-only", "--output", str(path)])
    assert tools.aa_calibration.main() == 0
    printed = capsys.readouterr().out
    false, power = (printed.index(title) for title in ("false verdicts", "slow-downs found"))
    table = [" ".join(line.split()) for line in printed[false:power].splitlines()]
    found = [" ".join(line.split()) for line in printed[power:].splitlines()]
    busy = "A/A, 2 busy processes 2/60 3.3% [0.4%, 11.5%] 60/60 100.0%"
    assert any(busy in line for line in table)
    assert any("3% slower, quiet 1/60 1.7% [0.0%, 8.9%] 0/60 0.0%" in line for line in table)
    assert any("3% slower, quiet 57/60 95.0% [86.1%, 99.0%] 60/60" in line for line in found)
    goals = [line for line in printed.splitlines() if line.startswith("goal:")]
    found = [re.fullmatch(r"goal: .+: (met|missed) \(.+\)", goal)[1] for goal in goals]
    assert found == ["met", "met", "missed"]
    assert ["too few pairs" in goal for goal in goals] == [True, False, False]


def test_a_report_without_pairs_and_a_damaged_file_say_so(tools, tmp_path, capsys, monkeypatch):
    path = tmp_path / "pairs.jsonl"
    for script in (tools.aa_calibration, tools.repeatability):
        monkeypatch.setattr(sys, "argv", ["x.py", "--report-only", "--output", str(path)])
        path.unlink(missing_ok=True)
        assert script.main() == 0
        assert "goal" not in capsys.readouterr().out
        path.write_text("{\n")
        assert script.main() == 1
        assert "remove that line" in capsys.readouterr().err


@pytest.mark.parametrize(("spread", "outcome"), [(0.01, "met"), (0.05, "missed")])
def test_repeatability_compares_spreads_of_runs_with_all_ratios(tools, capsys, spread, outcome):
    entries = []
    for number, sign in enumerate((1, -1, 1, -1)):
        entries.append(
            _entry(
                "loaded" if number % 2 else "quiet",
                number,
                raced=_found("faster", math.exp(sign * spread)),
                usual=_found("faster", math.exp(sign * 0.1)),
            )
        )
    entries.append(
        _entry("quiet", 9, raced=_found("incomparable", None), usual=_found("slower", 9.0))
    )
    # The goal compares with the better usual method, here the median.
    for entry in entries[:4]:
        far = entry["methods"]["mean"]["ratio"] ** 9
        entry["methods"]["mean"] = _found("faster", far)
    tools.repeatability.print_report(entries)
    printed = capsys.readouterr().out
    assert "5 runs; 4 have a ratio from each method" in printed
    assert f": {outcome} ({spread / 0.1:.2f} of it)" in printed


def _comes_true(condition):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.002)
    return False


def _block(index, samples):
    latencies_ms = tuple(float(value) for value in samples)
    return Block(round=index, latencies_ms=latencies_ms, cpu_ms=1.0, wall_ms=1.0)


def _found(verdict, ratio=1.0):
    return {
        "verdict": verdict,
        "reason": "none",
        "wall_s": 1.0,
        "ratio": ratio,
        "half_width": 0.01,
        "processes": 3,
        "stop_reason": "precision",
    }


def _entry(section, number, *, raced, usual):
    return {
        "section": section,
        "number": number,
        "configuration": CONFIGURATION,
        "methods": {"raced": raced, "mean": usual, "median": usual},
    }


def _campaign(tools, path, *, pairs, budget=None, during=lambda: None):
    asked = []

    def measure(section, number):
        asked.append((section, number))
        during()
        seed = tools.pairs.seed_of(1, section, number)
        return seed, {"raced": _found("same")}

    tools.campaign.measure_in_turns(
        tools.journal.Journal(path),
        measure,
        sections="ab",
        pairs=pairs,
        configuration=CONFIGURATION,
        budget=budget or tools.campaign.Budget(None),
    )
    return asked
