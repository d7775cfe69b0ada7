"""The scripts in `benchmarks/` start: their imports exist, and their options can be shown."""

import runpy
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
FRAMEWORKS = {"iree", "jax", "keras", "onnx", "onnxruntime", "openvino", "tensorflow", "torch"}
# mypy checks the others. These import a framework at the start, or parse no options.
EXEMPT = {
    *("compiled_calls", "fp16_sums", "jax_models", "separation", "tf_models", "wide_sums"),
    *("bench_overhead", "step_errors"),
}
SCRIPTS = {path.stem: path for path in sorted(BENCHMARKS.glob("[a-z]*.py"))}


@pytest.mark.parametrize("name", sorted(SCRIPTS.keys() - EXEMPT))
def test_a_script_shows_its_options_without_a_framework(name, monkeypatch, capsys):
    modules = set(sys.modules)
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(SCRIPTS[name]), run_name="__main__")
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: {name}.py")
    assert not FRAMEWORKS & (set(sys.modules) - modules)


def test_exempt_scripts_exist():
    assert set(SCRIPTS) >= EXEMPT
