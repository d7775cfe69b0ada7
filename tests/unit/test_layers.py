"""The overview names every package in the order of the layers, and no import points upward."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE = "comparative_benchmark"
SUITE = ROOT / "common_benchmark_suite" / "openxla" / "benchmark"


def packages_of_the_tree():
    own = {p.parent.name for p in (ROOT / HERE).glob("*/__init__.py")} | {"errors", "request"}
    suite = {p.parent.name for p in SUITE.glob("*/__init__.py")} | {
        p.stem for p in SUITE.glob("*.py")
    }
    return own | {f"openxla.benchmark.{name}" for name in suite - {"__init__"}}


def rows_of_the_overview():
    text = (ROOT / "docs" / "design" / "0000-overview.md").read_text()
    return [
        re.findall(r"`([a-z_.]+)`", cell)
        for cell in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    ]


def test_the_overview_names_every_package_and_no_other():
    named = [name for row in rows_of_the_overview() for name in row]
    assert sorted(named) == sorted(packages_of_the_tree())


def test_the_overview_is_in_the_order_of_the_layers():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(c["layers"] for c in contracts["contracts"] if c["type"] == "layers")
    position = {
        name.removeprefix(f"{HERE}."): number
        for number, layer in enumerate(layers)
        for name in layer.replace("|", " ").split()
    }
    positions = [position[name] for row in rows_of_the_overview() for name in row]
    assert positions == sorted(positions)


def test_there_is_no_loose_module_at_the_root():
    modules = {p.name for p in (ROOT / HERE).glob("*.py")}
    assert modules == {"__init__.py", "__main__.py", "errors.py", "request.py"}


def test_there_is_no_cycle_and_no_upward_import():
    script = ROOT / "scripts" / "dependency_graph.py"
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cycles: 0" in done.stdout
    assert "upward imports: 0" in done.stdout
