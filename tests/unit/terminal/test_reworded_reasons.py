"""Reasons can be reworded: decisions and output depend only on values."""

import importlib
import sys

import bench_support as support
import pytest

from comparative_benchmark.backends import api as backend_api
from comparative_benchmark.backends.missing_packages import Absence, Lack
from comparative_benchmark.cli import command as cli
from comparative_benchmark.engine.worker.executor import Executor
from comparative_benchmark.errors import EXIT_MISSING
from comparative_benchmark.interop.milabench import config, phases
from comparative_benchmark.interop.milabench.channel import PREPARE, Wishes
from comparative_benchmark.interop.milabench.processes import execution
from comparative_benchmark.interop.milabench.workspace import Placement
from comparative_benchmark.results.record import Status
from comparative_benchmark.results.results_file import read_document

pytestmark = pytest.mark.slow

WORDS = "other words: a module is lacking"


@pytest.fixture(autouse=True)
def reworded(monkeypatch):
    """Rewords every sentence about something that is not installed."""
    monkeypatch.setattr(Absence, "sentence", property(lambda _: WORDS))
    monkeypatch.setattr(Lack, "sentence", lambda *_, **__: WORDS)


@pytest.fixture
def environment(tmp_path):
    """The folder of a virtual environment without JAX."""
    python = tmp_path / "old" / "bin" / "python"
    python.parent.mkdir(parents=True)
    missing = '{"version": [3, 12, 1], "packages": [], "missing": ["jax", "flax"]}'
    python.write_text(f"#!/bin/sh\necho '{missing}'\n")
    python.chmod(0o755)
    return python.parent.parent


@pytest.mark.parametrize(
    ("options", "absent"),
    [
        (
            ["--backend", "test_absent", "-name", "models/BERT_TINY_FP32_PT_.*"],
            "test_absent (pip install a-module-that-is-missing)",
        ),
        (
            ["--backend", "jax_xla:xla+int8wo", "-name", "models/BERT_TINY_FP32_JAX_.*"],
            "qwix for jax_xla recipes (pip install -e '.[recipes]')",
        ),
        (
            ["--backend", "jax_xla", "--env", "x={old}", "-name", "models/BERT_TINY_FP32_JAX_.*"],
            "jax_xla (jax, flax in the environment x: {old}/bin/python)",
        ),
    ],
    ids=["backend", "recipe", "environment"],
)
def test_a_run_without_its_packages(capsys, tmp_path, monkeypatch, environment, options, absent):
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    monkeypatch.setattr(
        backend_api, "is_installed", lambda name: name not in ("qwix", "a_module_that_is_missing")
    )
    path = tmp_path / "r.json"
    options = [option.format(old=environment) for option in options]
    assert cli.main(["run", *options, "-device", "host-cpu", "-o", str(path)]) == EXIT_MISSING
    line = f"not installed: {absent.format(old=environment)}\n"
    assert capsys.readouterr().out == line
    assert {result.reason for result in read_document(path).benchmarks} == {WORDS}
    # A reader of the file has no more than the record.
    cli.main(["show", str(path)])
    assert line in capsys.readouterr().out


def test_a_package_that_a_suite_needs(tmp_path, monkeypatch):
    package = tmp_path / "somebodys_reworded_suite"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "net.py").write_text("import cbs_gone")
    monkeypatch.syspath_prepend(tmp_path)
    module = f"{package.name}.net"
    with pytest.raises(ImportError) as caught:
        importlib.import_module(module)
    sys.modules.pop(package.name)
    executor = Executor(lambda _: None)
    found = executor._error("load", caught.value, {"module_path": module, "parameters": {}})
    assert (found["kind"], found["message"]) == ("unsupported", WORDS)


def test_a_command_of_a_benchfile_that_fails(tmp_path):
    reworded = """
import milabench
milabench.CommandFailedError.__str__ = lambda error: "other words"
"""
    support.write(
        tmp_path / "a",
        benchfile=reworded + support.BENCHFILE,
        prepare="import sys; sys.exit('out of luck')",
    )
    base = tmp_path / "base"
    [bench] = support.installed(config.read(support.configured(tmp_path / "a.yaml", a=[])), base)
    outcome = phases.do(PREPARE, Placement(base=base, bench=bench, run_name="r"), Wishes())
    assert (outcome.status, outcome.reason) == (Status.FAILED, "other words: out of luck")


def test_a_script_that_takes_too_long(tmp_path, monkeypatch):
    end = execution.SupervisedCommand.end
    monkeypatch.setattr(
        execution.SupervisedCommand, "end", lambda self, _, **how: end(self, "other words", **how)
    )
    support.write(tmp_path / "a", "time.sleep(60)")
    path = support.configured(tmp_path / "a.yaml", a=["max_duration: 1"])
    code, results = support.run(path, tmp_path / "base")
    assert code != 0
    assert results["a"].status is Status.TIMEOUT
    assert "other words" in results["a"].reason
