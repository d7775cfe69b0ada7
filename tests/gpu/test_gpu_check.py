"""The check of a GPU on doubles: success and failure of every step, limits, remaining files."""

import copy
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import attrs
import pytest
from results_support import completed, metrics, record
from tests_support import processes_of, python_path, wait_for

from comparative_benchmark.analysis.roofline.ceilings import Ceilings, Copy, Gemm
from comparative_benchmark.results.results_file import plain
from gpu_check import __main__ as check_command
from gpu_check import observations
from gpu_check.bootstrap import CHECKOUT, SET_UP_FILE
from gpu_check.observations import Ending
from gpu_check.steps import MODULES, Machine, Step, all_steps

pytestmark = pytest.mark.slow

DOUBLE = Path(__file__).with_name("gpu_double.py")
EVERYTHING = frozenset(MODULES) - {"iree.compiler"}


def test_only_workers_import_frameworks():
    program = (
        "import importlib, pkgutil, sys, gpu_check\n"
        "for module in pkgutil.iter_modules(gpu_check.__path__, 'gpu_check.'):\n"
        "    importlib.import_module(module.name)\n"
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": python_path(CHECKOUT / "scripts")},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.split())
    assert "gpu_check.races" in loaded
    assert not loaded & {"torch", "jax", "flax", "transformers", "iree"}


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """A file with the results of the double's races."""
    compiles = [
        {"cold": True, "compile_ms": 900.0, "cache_hits": 0, "cache_misses": 3},
        {"cold": False, "compile_ms": 90.0, "cache_hits": 3, "cache_misses": 0},
    ]
    usual = {
        "compile": {"cold_ms": [900.0], "warm_ms": [90.0], "processes": compiles},
        "device_latencies_ms": [0.8, 0.9, 1.0],
        "dispatch_ms": [0.1, 0.2, 0.3],
        "device_memory_peak_mb": 512.5,
        "program": {"notes": {"tf32": False}, "device_name": "NVIDIA Double"},
    }
    stale = copy.deepcopy(usual)
    stale["compile"]["processes"][0]["cache_hits"] = 1
    stale["compile"]["processes"][1]["cache_hits"] = 0

    def whole(*records):
        return plain(completed({"benchmarks": list(records)}))

    def made_by(competitor, scale=1.0, status="ok", more=usual):
        framework = "PYTORCH" if competitor.startswith("pt") else "JAX"
        cost = {"flops": 1000, "bytes": 100, "flops_source": "the model"}
        level = {**metrics(scale=scale, race="r"), "workload_cost": cost, **more}
        fields = {"device": "host-gpu", "framework": f"ModelFrameworkType.{framework}"}
        return record("w", competitor, status=status, level=level, **fields)

    made = {
        "document": whole(),
        "ceilings": attrs.asdict(
            Ceilings(
                cpu_model="A CPU",
                gpu="NVIDIA Double",
                threads=None,
                date="2026-01-01",
                # The records' thousand operations take 2 and 1 ms.
                gemms=[Gemm(data_type="fp32", library="torch", version="3", size=8, gflops=2e-3)],
                copies=[
                    Copy(threads=None, buffer_bytes=8, version="3", gb_per_s=1.0, library="torch")
                ],
                skipped=("torch fp8: no unit",),
            )
        ),
        "good": whole(made_by("pt_inductor:eager", 2.0), made_by("jax_xla:xla"))["benchmarks"],
        "wrong": whole(
            made_by("pt_inductor:eager", 2.0),
            made_by("jax_xla:xla", more=stale),
            made_by("iree:cuda", status="out_of_memory", more={}),
        )["benchmarks"],
    }
    path = tmp_path_factory.mktemp("records") / "records.json"
    path.write_text(json.dumps(made))
    return path


@pytest.fixture
def check(tmp_path, monkeypatch, records):
    """Runs the check on the double; returns its exit code and what it wrote."""
    scratch, output = tmp_path / "scratch", tmp_path / "out"
    scratch.mkdir()
    (tmp_path / "wheels/programs/A").mkdir(parents=True)
    (tmp_path / "wheels/programs/A/manifest.json").touch()
    monkeypatch.setenv("CBS_GPU_CHECK_WORK", str(scratch))
    monkeypatch.setenv("CBS_ROOT_DIR", str(tmp_path / "root"))
    monkeypatch.setenv("GPU_DOUBLE_RECORDS", str(records))
    monkeypatch.setattr(
        Step,
        "command_lines",
        lambda step: [[sys.executable, "-I", str(DOUBLE), *line] for line in step.commands],
    )
    monkeypatch.setattr(check_command, "_write_page", lambda output: None)
    monkeypatch.setattr("gpu_check.observations._gpu", lambda: {"GPU": "NVIDIA Double"})

    def run(*arguments, faults="", modules=EVERYTHING):
        monkeypatch.setenv("GPU_DOUBLE", faults)
        monkeypatch.setattr(check_command, "is_installed", lambda name: name in modules)
        wheels = ("--wheels", str(tmp_path / "wheels"))
        code = check_command.main(["--output", str(output), *wheels, *arguments])
        return code, output

    return run


def _ending(output, step):
    steps = json.loads((output / "checks.json").read_text())["steps"]
    return next(item for item in steps if item["step"] == step)


def test_all_steps_of_a_good_gpu(check):
    code, output = check()
    assert code == 0
    written = {"checks.json", "summary.md", "logs.tar.xz", "tests.xml"}
    written |= {"matrix.json", "autotune.json", "races.json"}
    assert {path.name for path in output.iterdir()} == written
    checks = json.loads((output / "checks.json").read_text())
    assert checks["findings"] == []
    names = [step["step"] for step in checks["steps"]]
    assert names[:4] == ["environment", "matrix", "tests", "prepare"]
    assert {"faults", "measure", "iree-programs", "pairs", "ceilings", "vit-1"} <= set(names)
    assert {step["ending"] for step in checks["steps"]} == {"ok"}


def test_the_summary_of_a_good_gpu(check, tmp_path):
    made = {"installed_from_wheels": {"cattrs": "26"}, "missing_groups": {"iree": "too large"}}
    (tmp_path / "scratch" / SET_UP_FILE).write_text(json.dumps(made))
    _, output = check()
    text = (output / "summary.md").read_text()
    assert text.startswith("# GPU check: NVIDIA Double")
    assert "No findings in the steps that ran." in text
    assert "- from the wheel folder: cattrs 26\n- missing: iree: too large" in text
    matrix = "| workload | pt_inductor:eager (pytorch) | jax_xla:xla (jax) | iree:cuda (jax) |"
    assert matrix in text
    assert "| bert | 3.0e-07 of 2.0e-06 | 3.0e-07 of 2.0e-06 | unsupported |" in text
    # A reason keeps to its line, whatever a framework printed.
    assert "iree:cuda (jax) is unsupported: IREE finds no cuda device \\| &lt;b&gt;" in text
    measured = next(line for line in text.splitlines() if line.startswith("| W0 | jax_xla:xla |"))
    assert measured.endswith("| 0.2 | 0.9 | 512.5 | 0.9 | 0.09 | 0, 3 | off | 50% |")
    assert "| label-w | jax_xla:xla |" in text
    assert "| faster |" in text
    assert "| product fp32 | torch 3 | 0.002 GFLOP/s |" in text
    assert "- not measured: torch fp8: no unit" in text
    assert "| hang | timeout | timeout | right | too long |" in text
    assert "| equal | 1 | 1 | 0 | median 1.00%, maximum 1.00% |" in text
    assert "2 passed, 0 failed, 1 skipped" in text
    assert "- 1 skipped: no fp8" in text


WRONG = {
    "matrix": (2, "bert pytorch pt_inductor:eager: wrong_output in verify_last_run: off by 3"),
    "tests": (1, "test failed: a::second: assert 1 == 2"),
    "faults": (1, "planted fault hang: expected timeout, got crashed (too long)"),
    "measure": (1, "W0 jax_xla:xla: a cold compile hit a cache"),
    "races": (1, "jax_xla:xla: a warm compile hit no cache"),
    "pairs": (1, "1 of 1 verdicts on equal pairs are wrong"),
}


@pytest.mark.parametrize("step", WRONG)
def test_a_wrong_result_of_a_step_is_a_finding(check, step):
    expected, finding = WRONG[step]
    chosen = ("--steps", "measure,resnet50-32" if step in ("measure", "races") else step)
    code, output = check(*chosen, faults=f"{step}=wrong")
    assert code == expected
    findings = json.loads((output / "checks.json").read_text())["findings"]
    assert any(finding in text for text in findings), findings
    assert "No findings in the steps that ran." not in (output / "summary.md").read_text()


def test_pairs_that_could_not_be_compared_are_a_finding(check):
    _, output = check("--steps", "pairs", faults="pairs=wrong")
    findings = json.loads((output / "checks.json").read_text())["findings"]
    assert "1 of 1 slowed pairs could not be compared: baseline: crashed" in findings


def test_the_reason_of_a_kind_of_pairs_is_its_own():
    counts = {"wrong": 0, "incomparable": 1, "pairs": 1}
    verdicts = [{"kind": k, "verdict": "incomparable", "reason": f"of {k}"} for k in "ab"]
    found = observations._findings_of_pairs({"kinds": {"b": counts}, "verdicts": verdicts})
    assert list(found) == ["1 of 1 b pairs could not be compared: of b"]


@pytest.mark.parametrize("expected", [{}, {"expected": "known"}])
def test_a_known_failure_is_not_a_wrong_output(tmp_path, expected):
    cell = {"label": "a", "framework": "f", "competitor": "c", "phase": "p", "reason": "r"}
    cell |= {"status": "wrong_output", **expected}
    (tmp_path / "matrix.json").write_text(json.dumps({"cells": [cell]}))
    machine = Machine(device="host-cpu", output=tmp_path, scratch=tmp_path, modules=frozenset())
    seen = observations.collect(machine, [], started=time.monotonic())
    assert seen.wrong_outputs is (not expected)
    assert bool(seen.findings) is (not expected)


def test_results_of_an_earlier_check_are_removed(check, tmp_path):
    output = tmp_path / "out"
    output.mkdir()
    results = ("matrix.json", "autotune.json", "races.json", "tests.xml", "page.html")
    for name in (*results, "notes.txt"):
        (output / name).write_text("earlier")
    code, _ = check("--steps", "matrix")
    assert code == 0
    written = {"notes.txt", "matrix.json", "checks.json", "summary.md", "logs.tar.xz"}
    assert {path.name for path in output.iterdir()} == written
    assert json.loads((output / "matrix.json").read_text())["cells"]


MUST_PASS = (
    "matrix",
    "tests",
    "prepare",
    "faults",
    "measure",
    "iree-programs",
    "pairs",
    "ceilings",
)


@pytest.mark.parametrize("step", MUST_PASS)
def test_a_step_that_fails_costs_itself(check, step):
    code, output = check("--steps", f"{step},environment", faults=f"{step}=exit")
    assert code == 1
    assert _ending(output, step)["ending"] == "failed"
    assert _ending(output, step)["reason"] == f"exit code 1, see logs/{step}.log"
    assert _ending(output, "environment")["ending"] == "ok"


def test_a_missing_tool_of_the_environment_fails_nothing(check):
    code, output = check("--steps", "environment", faults="environment=exit")
    assert code == 0
    assert _ending(output, "environment")["codes"] == [1, 1, 1]


@pytest.mark.slow
def test_a_step_that_hangs_is_cut_off_with_all_it_started(check, monkeypatch, tmp_path):
    short = {"matrix": 3.0}
    monkeypatch.setattr(
        check_command,
        "all_steps",
        lambda machine: [
            attrs.evolve(step, limit_s=short.get(step.name, step.limit_s))
            for step in all_steps(machine)
        ],
    )
    monkeypatch.setattr(check_command, "_GRACE_S", 1.0)
    code, output = check("--steps", "matrix,faults", faults="matrix=hang")
    assert code == 1
    assert _ending(output, "matrix")["ending"] == "timeout"
    assert "stopped after 3 s" in _ending(output, "matrix")["reason"]
    assert _ending(output, "faults")["ending"] == "ok"
    assert processes_of(f"CBS_GPU_CHECK_WORK={tmp_path / 'scratch'}") == []


def test_half_a_file_of_a_step_that_died_is_ignored(check):
    code, output = check("--steps", "matrix,faults", faults="matrix=lost")
    assert code == 1
    assert _ending(output, "matrix")["reason"] == "exit code -9, see logs/matrix.log"
    assert _ending(output, "faults")["ending"] == "ok"
    assert "## Correctness" not in (output / "summary.md").read_text()


@pytest.mark.parametrize(
    ("lacking", "step", "reason"),
    [
        ("torch", "faults", "torch not installed"),
        ("pytest", "tests", "pytest not installed"),
        ("iree.runtime", "iree-programs", "iree.runtime not installed"),
    ],
)
def test_a_missing_stack_is_reported_and_the_rest_runs(check, lacking, step, reason):
    code, output = check("--steps", f"matrix,{step}", modules=EVERYTHING - {lacking})
    assert code == 0
    assert _ending(output, step) | {"seconds": 0} == {
        "step": step,
        "title": _ending(output, step)["title"],
        "ending": "not run",
        "seconds": 0,
        "reason": reason,
        "codes": [],
    }
    assert _ending(output, "matrix")["ending"] == "ok"
    assert reason in (output / "summary.md").read_text()


def test_without_jax_the_pairs_are_of_pytorch(tmp_path):
    machine = Machine(
        device="host-gpu",
        output=tmp_path,
        scratch=tmp_path,
        modules=frozenset({"torch", "transformers"}),
    )
    [pairs] = (step for step in all_steps(machine) if step.name == "pairs")
    assert "pt_inductor:eager" in pairs.commands[0]
    [matrix] = (step for step in all_steps(machine) if step.name == "matrix")
    backends = matrix.commands[0][matrix.commands[0].index("--backend") + 1]
    assert backends.split(",") == [
        "pt_inductor:eager",
        "pt_inductor:inductor",
        "pt_inductor:inductor+cuda-graphs",
    ]
    assert all_steps(machine)[-1].name == "autotune"


def test_the_gpu_tests_need_no_plug_in_of_pytest(tmp_path):
    machine = Machine(device="host-gpu", output=tmp_path, scratch=tmp_path, modules=frozenset())
    [tests] = (step for step in all_steps(machine) if step.name == "tests")
    [command] = tests.command_lines()
    bare = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": python_path(CHECKOUT / "scripts")}
    done = subprocess.run(
        [*command, "--collect-only"],
        env={**os.environ, **bare},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_step_starts_after_the_deadline(check):
    code, output = check("--minutes", "0.4")
    assert code == 0
    steps = json.loads((output / "checks.json").read_text())["steps"]
    assert {step["reason"] for step in steps} == {"no time left"}


@pytest.mark.slow
def test_a_step_that_the_deadline_cuts_off_is_not_a_failure(check, monkeypatch):
    monkeypatch.setattr(check_command, "_GRACE_S", 1.0)
    monkeypatch.setattr(check_command, "_SHORTEST_S", 1.0)
    code, output = check("--minutes", "0.45", "--steps", "matrix,faults", faults="matrix=hang")
    assert code == 0
    assert _ending(output, "matrix")["ending"] == "not run"
    assert _ending(output, "matrix")["reason"] == "the time ran out after 2 s"
    assert _ending(output, "faults")["reason"] == "no time left"


def test_an_unknown_step_gets_the_choices(check):
    with pytest.raises(SystemExit, match=r"unknown step races; choices are environment, matrix"):
        check("--steps", "races")


def test_results_are_saved_before_the_next_step(tmp_path):
    seen = []
    machine = Machine(
        device="host-cpu", output=tmp_path / "out", scratch=tmp_path, modules=frozenset(), cpus=2
    )
    machine.output.mkdir()
    first = Step(
        name="first",
        title="",
        commands=((str(sys.executable), "-c", "open('a.json', 'w').write('1')"),),
        limit_s=60,
        writes=("a.json",),
    )
    second = attrs.evolve(first, name="second", commands=(("no-such-program",),), writes=())
    running = check_command.Driver(
        machine,
        deadline=time.monotonic() + 60,
        save=lambda: seen.append(sorted(path.name for path in machine.output.iterdir())),
        log=lambda _: None,
    )
    running.run([first, second])
    assert seen == [["a.json"], ["a.json"]]
    assert [outcome.ending for outcome in running.outcomes] == [Ending.OK, Ending.FAILED]
    assert running.outcomes[1].reason == "exit code 127, see logs/second.log"


@pytest.mark.parametrize(("cpus", "together"), [(16, True), (2, False)])
def test_untimed_steps_run_in_parallel(tmp_path, cpus, together):
    machine = Machine(
        device="host-cpu", output=tmp_path, scratch=tmp_path, modules=frozenset(), cpus=cpus
    )
    # Each waits for the other, and gives up after a while.
    program = (
        "import pathlib, sys, time\n"
        "me, other = sys.argv[1:]\n"
        "pathlib.Path(me).touch()\n"
        "until = time.monotonic() + float({patience})\n"
        "while not pathlib.Path(other).exists():\n"
        "    if time.monotonic() > until: sys.exit(1)\n"
        "    time.sleep(0.05)\n"
    ).replace("{patience}", "30" if together else "0.5")
    steps = [
        Step(
            name=me,
            title="",
            commands=((str(sys.executable), "-c", program, me, other),),
            limit_s=60,
            untimed=True,
        )
        for me, other in (("a", "b"), ("b", "a"))
    ]
    running = check_command.Driver(
        machine, deadline=time.monotonic() + 60, save=lambda: None, log=lambda _: None
    )
    running.run(steps)
    assert (running.outcomes[0].ending is Ending.OK) == together


INTERRUPTED = """
import pathlib, signal, sys, time
from gpu_check import __main__ as check_command
from gpu_check.steps import Machine, Step

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
check_command._GRACE_S = 1.0
scratch = pathlib.Path(sys.argv[1])
sleep = ("sleep", "3600.03125")
running = check_command.Driver(
    Machine(device="host-cpu", output=scratch, scratch=scratch, modules=frozenset(), cpus=16),
    deadline=time.monotonic() + 7200,
    save=lambda: None,
    log=lambda _: None,
)
try:
    # A second command shows that none is begun after the interrupt.
    running.run([
        Step(name=name, title="", commands=(sleep, sleep), limit_s=3600, untimed=True)
        for name in ("a", "b")
    ])
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.slow
def test_an_interrupt_ends_parallel_steps(tmp_path):
    mark = f"CBS_TEST_MARKER={tmp_path}"
    # In a separate process, because pytest handles the signals of this one.
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, tmp_path],
        env={
            **os.environ,
            "PYTHONPATH": python_path(CHECKOUT / "scripts"),
            "CBS_TEST_MARKER": str(tmp_path),
        },
    ) as process:
        try:
            wait_for(lambda: len(processes_of(mark)) == 3, "both commands")
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 130
        finally:
            process.kill()
    assert processes_of(mark) == []


def test_the_archive_has_the_end_of_long_logs(check, monkeypatch):
    monkeypatch.setattr(check_command, "_LONGEST_LOG_BYTES", 20)
    _, output = check("--steps", "matrix")
    with tarfile.open(output / "logs.tar.xz") as archive:
        content = archive.extractfile("logs/matrix.log").read()
    assert content == b"the double of matrix"[-19:] + b"\n"


def test_nothing_is_left_but_the_output(check, tmp_path):
    check("--steps", "matrix")
    assert not (tmp_path / "scratch").exists()


def test_an_interrupt_keeps_finished_results(check, monkeypatch):
    real = check_command.Driver._command

    def interrupted(self, step, line, limit_s):
        if step.name == "tests":
            raise KeyboardInterrupt
        return real(self, step, line, limit_s)

    monkeypatch.setattr(check_command.Driver, "_command", interrupted)
    code, output = check("--steps", "matrix,tests,faults")
    assert code == 130
    assert (output / "summary.md").exists()


def test_the_rehearsal_has_the_same_steps_with_tiny_models(tmp_path):
    machine = Machine(
        device="host-cpu", output=tmp_path, scratch=tmp_path, modules=frozenset(MODULES)
    )
    real = attrs.evolve(machine, device="host-gpu")
    rehearsed = {step.name for step in all_steps(machine)}
    races = {"bert-1", "resnet50-32", "vit-32", "bert-32", "resnet50-1", "vit-1"}
    due = {step.name for step in all_steps(real)} - races - {"prepare", "autotune"}
    assert due <= rehearsed
    assert all("CHECK_" not in str(step.commands) for step in all_steps(machine))
    assert sum(step.limit_s for step in all_steps(real)[:4]) < 660
