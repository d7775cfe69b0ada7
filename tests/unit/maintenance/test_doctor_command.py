"""`cbs doctor` itself: what it prints, and its exit codes."""

import argparse
import json
import subprocess
import sys

import pytest

from comparative_benchmark.analysis.roofline import ceilings
from comparative_benchmark.cli.commands import doctor as command
from comparative_benchmark.cli.options import maintenance as options
from comparative_benchmark.errors import UsageError
from comparative_benchmark.maintenance.doctor.system import Finding
from openxla.benchmark.installation import set_root

ROOF = ceilings.Ceilings(
    cpu_model="Some CPU @ 2.0 GHz",
    threads=2,
    date="2026-01-01T00:00:00+00:00",
    gemms=tuple(
        ceilings.Gemm(data_type="fp32", library=library, version="1", size=512, gflops=gflops)
        for library, gflops in (("numpy", 50.0), ("torch", 100.0))
    ),
    copies=(ceilings.Copy(threads=2, buffer_bytes=1, version="1", gb_per_s=10.0),),
)


def run_doctor(*arguments):
    parser = argparse.ArgumentParser()
    options.add_doctor_arguments(parser)
    chosen = parser.parse_args(arguments)
    set_root(chosen.root_dir)
    return command.run(chosen)


@pytest.fixture
def findings(monkeypatch):
    """Replaces this machine's findings."""

    def put(*statuses):
        found = [
            Finding(name=f"n{i}", status=status, value="[v]", cost="c", fix="f", verify="true")
            for i, status in enumerate(statuses)
        ]
        monkeypatch.setattr(command, "examine", lambda _: found)

    return put


@pytest.mark.parametrize(
    ("statuses", "strict", "code"),
    [
        (["ok", "unknown"], True, 0),
        (["ok", "warning"], False, 0),
        (["ok", "warning"], True, 2),
        (["problem"], True, 2),
        (["problem"], False, 0),
    ],
)
def test_exit_codes(findings, capsys, statuses, strict, code):
    findings(*statuses)
    assert run_doctor(*["--strict"] * strict) == code
    out = capsys.readouterr().out
    assert "[v]" in out
    assert "n0:               true" in out


def test_json(findings, capsys):
    findings("warning")
    assert run_doctor("--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["findings"][0]["status"] == "warning"
    assert printed["ceilings"] is None


def test_ceilings_that_can_not_be_measured_are_a_failure(findings, capsys, monkeypatch):
    findings("ok")

    def fail(*_, **__):
        raise ceilings.CeilingsError("no library")

    monkeypatch.setattr(ceilings, "measure_ceilings", fail)
    assert run_doctor("--ceilings") == 1
    assert "cbs: no library" in capsys.readouterr().err
    with pytest.raises(UsageError, match="--threads 0"):
        run_doctor("--ceilings", "--threads", "0")


@pytest.mark.parametrize(
    ("gflops", "text"),
    [(12.34, "12.3 GFLOP/s"), (1234.5, "1230 GFLOP/s"), (123_456.0, "123 TFLOP/s")],
)
def test_no_rate_has_an_exponent(gflops, text):
    assert command._product_rate(gflops) == text


def test_ceilings_are_kept_and_printed(findings, capsys, monkeypatch, tmp_path):
    findings("ok")
    monkeypatch.setattr(ceilings, "measure_ceilings", lambda *_, **__: ROOF)
    # So that the option's change of the environment ends with the test.
    monkeypatch.setenv("CBS_ROOT_DIR", "unused")
    assert run_doctor("--ceilings", "--root-dir", str(tmp_path / "kept")) == 0
    out, err = capsys.readouterr()
    assert "100 GFLOP/s *" in out
    assert "50 GFLOP/s" in out
    assert "10 GB/s" in out
    assert "ceilings-some-cpu-2-0-ghz-2.json" in err
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_the_command_imports_no_framework():
    code = (
        "import sys, comparative_benchmark.cli.commands.doctor; "
        "print(sorted({'torch', 'jax', 'jaxlib', 'iree', 'flax', 'transformers', 'tensorflow'}"
        " & {name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
