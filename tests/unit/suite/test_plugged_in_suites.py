"""Suites that installed packages register in the entry point group."""

import pytest

from openxla.benchmark.comparative_suite import catalog

MODULE = """
import attrs
from openxla.benchmark.comparative_suite.jax.benchmark_definitions import ALL_BENCHMARKS as _OF_JAX
ALL_BENCHMARKS = [attrs.evolve(_OF_JAX[0], name="models/PLUGGED_IN/inputs/X")]
"""


def register(folder, group, suffix=".dist-info"):
    info = folder / f"plugged_in-1.0{suffix}"
    info.mkdir(parents=True)
    metadata = "METADATA" if suffix == ".dist-info" else "PKG-INFO"
    (info / metadata).write_text("Metadata-Version: 2.1\nName: plugged_in\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\nmine = plugged_in_suite\n")
    (folder / "plugged_in_suite.py").write_text(MODULE)


def names():
    return [case.name for case in catalog.all_benchmarks()]


@pytest.mark.parametrize("suffix", [".dist-info", ".egg-info", ".DIST-INFO"])
def test_a_registered_suite_is_in_the_catalogue(tmp_path, monkeypatch, suffix):
    register(tmp_path, catalog.SUITES_GROUP, suffix)
    monkeypatch.syspath_prepend(tmp_path)
    assert "models/PLUGGED_IN/inputs/X" in names()


def test_what_cannot_be_read_hides_no_suite(tmp_path, monkeypatch):
    (tmp_path / "a-1.0.dist-info" / "entry_points.txt").mkdir(parents=True)
    register(tmp_path, catalog.SUITES_GROUP)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend("x" * 300)  # longer than a name may be
    assert "plugged_in_suite" in [point.value for point in catalog._plugged_in()]


def test_another_group_registers_no_suite(tmp_path, monkeypatch):
    register(tmp_path, "other.group")
    monkeypatch.syspath_prepend(tmp_path)
    assert "models/PLUGGED_IN/inputs/X" not in names()
