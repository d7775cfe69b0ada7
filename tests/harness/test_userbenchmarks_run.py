"""Userbenchmarks in separate processes, by the command line."""

import json
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import bench_support
import pytest
from tests_support import processes_of

from comparative_benchmark.cli import command as cli
from comparative_benchmark.interop.userbenchmarks.runner import Userbenchmark, metrics_files
from comparative_benchmark.studies.bisection import request

AUTHORING = "from comparative_benchmark.interop.userbenchmarks.authoring import "
TOYS = ("--suite", "cbs_test_plugin.suite", "--backend", "test_numpy")


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "userbenchmark"
    folder.mkdir()
    return folder


@pytest.fixture
def make(folder):
    """Makes a userbenchmark of a program."""

    def make(name, program, **files):
        path = folder / name
        path.mkdir()
        (path / "__init__.py").write_text(textwrap.dedent(program))
        for file, text in files.items():
            (path / f"{file}.py").write_text(textwrap.dedent(text))
        return path

    return make


@pytest.fixture
def cbs(tmp_path, environment):
    """Runs `cbs userbenchmark` in the folder that holds `userbenchmark/`."""

    def run(*arguments, **variables):
        return subprocess.run(
            [sys.executable, "-m", "comparative_benchmark", "userbenchmark", *arguments],
            cwd=tmp_path,
            env={**environment, **variables},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run


WRITES = f"""
    {AUTHORING}dump_output, get_output_json

    def run(args):
        dump_output("mine", get_output_json("mine", {{"metric": float(args[0]), "n": len(args)}}))
"""


def test_run_leaves_metrics_and_compare_finds_them(make, cbs, tmp_path):
    make("mine", WRITES)
    for value in ("1.0", "2.0"):
        done = cbs("run", "mine", value, "--flag", "-x")
        assert done.returncode == 0, done.stderr
    paths = metrics_files(tmp_path / ".userbenchmark" / "mine")
    assert [json.loads(path.read_text())["metrics"]["metric"] for path in paths] == [1.0, 2.0]
    assert json.loads(paths[0].read_text())["metrics"]["n"] == 3
    assert done.stdout == f"metrics: {paths[1]}\n"
    compared = cbs("compare", "mine")
    assert compared.returncode == 2
    assert "+100.0%  metric: 1 -> 2" in compared.stdout


def test_a_benchmark_of_torchbench_runs_as_it_is(folder, make, cbs, tmp_path):
    (folder / "utils.py").write_text(
        f"{AUTHORING}dump_output, get_output_json, TorchBenchABTestMetric, TorchBenchABTestResult"
    )
    make(
        "old-style",
        "BM_NAME = 'old-style'\n",
        run="""
            from ..utils import dump_output, get_output_json
            from . import BM_NAME
            from typing import List

            def run(args: List[str]):
                dump_output(BM_NAME, get_output_json(BM_NAME, {"a": 1.0}))
        """,
        regression_detector="""
            from ..utils import TorchBenchABTestResult, TorchBenchABTestMetric
            from . import BM_NAME

            def run(control, treatment):
                print("a detector may print")
                details = {"a": TorchBenchABTestMetric(control=1.0, treatment=3.0, delta=2.0)}
                return TorchBenchABTestResult(
                    name=BM_NAME, control_env=control["environ"],
                    treatment_env=treatment["environ"], details=details,
                )
        """,
    )
    assert cbs("run", "old-style").returncode == 0
    assert cbs("run", "old-style").returncode == 0
    compared = cbs("compare", "old-style", "--json")
    assert compared.returncode == 2, compared.stderr
    document = json.loads(compared.stdout)
    assert document["details"] == {"a": {"control": 1.0, "treatment": 3.0, "delta": 2.0}}
    assert "a detector may print" in compared.stderr


CHECKOUT = {
    "torchbenchmark/__init__.py": """
        from pathlib import Path
        REPO_PATH = Path(__file__).parent.parent
        from utils import DEPS
    """,
    "torchbenchmark/util/experiment/metrics.py": "def get_metrics(): return {'a': 1.5}",
    "utils/__init__.py": "DEPS = ['torch']",
    "userbenchmark/__init__.py": "",
    # TorchBench's own file writes next to its folder and ignores our options.
    "userbenchmark/utils.py": """
        import json, os, time
        from pathlib import Path
        REPO_PATH = Path(os.path.abspath(__file__)).parent.parent
        def dump_output(bm_name, output, target_dir=None):
            folder = REPO_PATH / ".userbenchmark" / bm_name
            folder.mkdir(parents=True, exist_ok=True)
            name = time.strftime("metrics-%Y%m%d%H%M%S.json")
            (folder / name).write_text(json.dumps(output))
    """,
    "userbenchmark/of-models/run.py": """
        import torchbenchmark.util.experiment.metrics as metrics
        from torchbenchmark import DEPS, REPO_PATH
        from userbenchmark.of_another import LIMIT
        from ..utils import dump_output, REPO_PATH as of_utils

        def run(args):
            assert REPO_PATH == of_utils and DEPS == ["torch"], (REPO_PATH, of_utils)
            output = {"name": "of-models", "environ": {}, "metrics": metrics.get_metrics()}
            dump_output("of-models", output)
    """,
    "userbenchmark/of_another/__init__.py": "LIMIT = 3",
}


def test_a_checkout_of_torchbench_is_on_the_path_of_its_userbenchmarks(cbs, tmp_path):
    for name, text in CHECKOUT.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    listed = cbs("list")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["of-models", "of_another"]
    beside = tmp_path / ".userbenchmark" / "of-models"
    done = cbs("run", "of-models")
    assert done.returncode == 0, done.stderr
    [path] = metrics_files(beside)
    assert json.loads(path.read_text())["metrics"] == {"a": 1.5}
    path.unlink()
    elsewhere = cbs("run", "-o", str(tmp_path / "out"), "of-models")
    assert elsewhere.returncode == 0, elsewhere.stderr
    assert len(metrics_files(tmp_path / "out" / "of-models")) == 1
    assert metrics_files(beside) == []


def test_a_userbenchmark_outside_any_checkout_imports_what_torchbench_has(make, cbs, tmp_path):
    make(
        "mine",
        """
        import importlib.util
        from userbenchmark.utils import REPO_PATH, add_path, dump_output, get_output_json
        import userbenchmark.utils

        def run(args):
            base = importlib.util.find_spec("torchbenchmark.tasks")
            where = {"base": base.origin, "root": str(REPO_PATH)}
            userbenchmark.utils.dump_output("mine", get_output_json("mine", where))
        """,
    )
    done = cbs("run", "mine")
    assert done.returncode == 0, done.stderr
    [path] = metrics_files(tmp_path / ".userbenchmark" / "mine")
    told = json.loads(path.read_text())["metrics"]
    assert told["root"] == str(tmp_path)
    assert Path(told["base"]).parts[-2:] == ("torchbenchmark", "tasks.py")


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("", "userbenchmark 'mine' has no run(args)"),
        ("run = 3", "has no run(args)"),
        ("def run(args): pass", "ended with exit code 0 but wrote no metrics-*.json"),
        ("import a_module_that_is_missing", "failed: exit code 1"),
        ("def run(args): raise ValueError('a reason')", "failed: exit code 1"),
        ("def run(args): return 7", "failed: exit code 7"),
        ("import os\ndef run(args): os.kill(os.getpid(), 9)", "killed by SIGKILL"),
        (WRITES.replace('"n": len(args)', '"n": None'), "invalid value for metric 'n': None"),
        (WRITES.replace('get_output_json("mine"', 'get_output_json("other"'), "not 'mine'"),
    ],
)
def test_what_goes_wrong_is_said_by_name(make, cbs, program, words):
    make("mine", program)
    done = cbs("run", "mine", "1.0")
    assert done.returncode == 1
    assert words in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("cbs: ")
    assert "Traceback" not in last


def test_the_reason_of_a_failure_is_shown(make, cbs):
    make("mine", "def run(args): raise ValueError('a reason')")
    assert "ValueError: a reason" in cbs("run", "mine").stderr


def test_an_unknown_name_is_refused(make, cbs):
    make("mine", WRITES)
    done = cbs("run", "mien")
    assert done.returncode == 1
    assert "did you mean mine?" in done.stderr


def test_metrics_with_statuses_keep_their_exit_code(make, cbs, tmp_path):
    make("mine", f"{WRITES}        return 2\n")
    done = cbs("run", "mine", "1.0")
    assert done.returncode == 2, done.stderr
    assert len(metrics_files(tmp_path / ".userbenchmark" / "mine")) == 1


def test_one_that_hangs_is_killed_with_all_that_it_started(make, cbs, tmp_path):
    make(
        "mine",
        """
        import subprocess, signal, sys, time

        def run(args):
            ignore = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
            subprocess.Popen([sys.executable, "-c", ignore])
            time.sleep(600)
        """,
    )
    done = cbs("run", "--timeout", "1.5", "mine", CBS_TEST_MARKER=str(tmp_path))
    assert done.returncode == 1
    assert "took more than 1.5 s and was killed" in done.stderr
    assert processes_of(f"CBS_TEST_MARKER={tmp_path}") == []


def test_the_current_directory_stands_for_no_package(make, cbs, tmp_path):
    (tmp_path / "json.py").write_text("raise RuntimeError('the wrong json')")
    make("mine", WRITES)
    done = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "comparative_benchmark"),
            *("userbenchmark", "run", "mine", "1.0"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_comparative_suite_runs_and_is_compared(cbs, environment, tmp_path):
    shipped = ("--directory", str(Path(cli.__file__).parents[2] / "userbenchmark"))
    output = ("-o", str(tmp_path / "out"))
    arguments = (*TOYS, "-name", "models/TOY_(NONE|NAN)/.+", "-w", "1", "-iter", "3")
    for _ in range(2):
        done = cbs("run", *shipped, *output, "comparative_suite", *arguments)
        # One of the two is wrong: its status is shown, and the metrics still count.
        assert done.returncode == 2, done.stderr
        assert "metrics: " in done.stdout
    paths = metrics_files(tmp_path / "out" / "comparative_suite")
    document = json.loads(paths[0].read_text())
    values = {k: v for k, v in document["metrics"].items() if k.endswith("metric=latencies")}
    [right, wrong] = (
        value for name in ("TOY_NONE", "TOY_NAN") for key, value in values.items() if name in key
    )
    assert right > 0
    assert wrong == "wrong_output"
    # Its sources stay next to it.
    evidence = paths[0].parent / paths[0].stem.replace("metrics", "output") / "results.json"
    assert len(json.loads(evidence.read_text())["benchmarks"]) == 2
    compared = cbs("compare", *shipped, *output, "comparative_suite")
    assert compared.returncode in (0, 2), compared.stderr
    assert "metrics compared" in compared.stdout


def test_compile_latency_measures_cold_and_warm(cbs, tmp_path):
    shipped = ("--directory", str(Path(cli.__file__).parents[2] / "userbenchmark"))
    arguments = (*TOYS, "-name", "models/TOY_NONE/.+", "--processes", "2")
    done = cbs("run", *shipped, "-o", str(tmp_path / "out"), "compile_latency", *arguments)
    assert done.returncode == 0, done.stderr
    [path] = metrics_files(tmp_path / "out" / "compile_latency")
    names = {key.rpartition("metric=")[2] for key in json.loads(path.read_text())["metrics"]}
    assert {"compile_time_ms", "warm_compile_time_ms"} <= names
    assert "latencies" not in names


class Wheels:
    """An installer whose package `stepper` defines its own slowness."""

    slow_from = "1.3"

    def versions(self, package, *, prereleases):
        return ["1.0", "1.1", "1.2", "1.3", "1.4"] if package == "stepper" else []

    def install(self, python, requirements, log_file):
        purelib = Path(sysconfig.get_path("purelib", vars={"base": str(python.parents[1])}))
        ours = sysconfig.get_path("purelib")
        (purelib / "ours.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
        [pin] = [line for line in requirements if line.startswith("stepper==")]
        version = pin.partition("==")[2]
        time = 2.0 if version >= self.slow_from else 1.0
        (purelib / "stepper.py").write_text(f"TIME = {time}\n")


def test_bisect_goes_by_the_metrics_of_a_userbenchmark(make, tmp_path, monkeypatch, capsys):
    make(
        "stepping",
        f"""
        import os, stepper
        {AUTHORING}dump_output, get_output_json

        def run(args):
            noise = 1 + int.from_bytes(os.urandom(1)) / 256 / 1000
            metrics = {{"time": stepper.TIME * noise, "other": 1.0 * noise}}
            dump_output("stepping", get_output_json("stepping", metrics))
        """,
    )
    monkeypatch.chdir(tmp_path)
    parsed = []
    monkeypatch.setattr(request, "PipInstaller", lambda _: parsed.append("used") or Wheels())
    arguments = ["--package", "stepper", "--good", "1.0", "--bad", "1.4", "--metric", "^time$"]
    command = ["userbenchmark", "bisect", *arguments, "-o", str(tmp_path / "state"), "--json"]
    assert cli.main([*command, "stepping"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["last_good"], found["first_bad"], found["found"]) == ("1.2", "1.3", True)
    # The second call has the result.
    before = sorted((tmp_path / "state" / "runs").iterdir())
    assert cli.main([*command, "stepping"]) == 0
    assert sorted((tmp_path / "state" / "runs").iterdir()) == before
    assert parsed == ["used", "used"]


@pytest.mark.nightly
def test_bisect_finds_what_made_a_script_slower(tmp_path, monkeypatch, capsys):
    main = "import stepper\nrates([100.0 / stepper.TIME + i % 3 for i in range(12)])"
    bench_support.write(tmp_path / "script", main)
    config = bench_support.configured(tmp_path / "c.yaml", script=[])
    shipped = ("--directory", str(Path(cli.__file__).parents[2] / "userbenchmark"))
    monkeypatch.setattr(request, "PipInstaller", lambda _: Wheels())
    monkeypatch.setattr(Wheels, "slow_from", "1.1")
    which = ["--package", "stepper", "--good", "1.0", "--bad", "1.1", "--metric", "throughput$"]
    command = ["userbenchmark", "bisect", *shipped, *which, "-o", str(tmp_path / "state"), "--json"]
    scripts = ["--config", str(config), "--base", str(tmp_path / "base"), "--use-current-env"]
    assert cli.main([*command, "milabench", *scripts]) == 0, capsys.readouterr()
    found = json.loads(capsys.readouterr().out)
    assert (found["last_good"], found["first_bad"], found["found"]) == ("1.0", "1.1", True)


def test_bisect_of_what_did_not_change_reports_it(make, tmp_path, monkeypatch, capsys):
    make("mine", WRITES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(request, "PipInstaller", lambda _: Wheels())
    arguments = ["--package", "stepper", "--good", "1.0", "--bad", "1.1", "--metric", "^n$"]
    code = cli.main(["userbenchmark", "bisect", *arguments, "-o", str(tmp_path / "s"), "mine", "1"])
    assert code == 3
    assert "mine: stepper 1.1 is not worse than 1.0: nothing to bisect" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--package", "a", "--runs", "2"], "--runs must be at least 3"),
        ([], "specify what to bisect"),
        (["--package", "a", "--metric", "("], "--metric '(' is not a regular expression"),
        (["--git", "."], "--git REPO and --build CMD must be given together"),
    ],
)
def test_bisect_refuses_what_can_not_be(make, tmp_path, monkeypatch, capsys, arguments, words):
    make("mine", WRITES)
    monkeypatch.chdir(tmp_path)
    command = ["userbenchmark", "bisect", "--good", "1", "--bad", "2", *arguments, "mine"]
    assert cli.main(command) == 1
    assert words in capsys.readouterr().err


def test_a_userbenchmark_is_a_folder(folder, make):
    path = make("mine", WRITES)
    assert Userbenchmark(name="mine", folder=path).ci is None
