"""Choice and unpacking of packages from the wheel folder."""

import os
import sys
import tomllib
import zipfile

import pytest
from wheel_support import make_wheel

from comparative_benchmark.analysis.machine.host import python_environment
from gpu_check import bootstrap, wheel_folder
from gpu_check.wheel_folder import FolderError, IncompleteError


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "wheels"


def wheels_of(*paths):
    return {wheel.name: wheel for wheel in map(wheel_folder.read_wheel, paths)}


def names(chosen):
    return [wheel.name for wheel in chosen]


def test_installed_packages_that_are_new_enough_stay(folder):
    wheels = wheels_of(make_wheel(folder, "attrs", "26.1", {}))
    assert wheel_folder.choose(["attrs>=24.2"], wheels, {"attrs": "24.2.0"}) == []
    assert names(wheel_folder.choose(["attrs>=24.2"], wheels, {"attrs": "24.1"})) == ["attrs"]
    assert names(wheel_folder.choose(["attrs>=24.2"], wheels, {})) == ["attrs"]


@pytest.mark.parametrize("version", ["2.11.0+cu130", "2.12.0.dev20260101", "2.13.0rc1"])
def test_builds_and_previews_of_a_machine_count(version):
    assert wheel_folder.choose(["torch>=2.10"], {}, {"torch": version}) == []


@pytest.mark.parametrize("order", [["attrs>=24.2", "cattrs"], ["cattrs", "attrs>=24.2"]])
def test_requirements_of_a_wheel_are_chosen_too(folder, order):
    wheels = wheels_of(
        make_wheel(folder, "attrs", "26.1", {}),
        make_wheel(folder, "cattrs", "26.2", {}, requires=["attrs>=25.4"]),
    )
    chosen = wheel_folder.choose(order, wheels, {"attrs": "24.2"})
    assert sorted(names(chosen)) == ["attrs", "cattrs"]
    assert names(wheel_folder.choose(order, wheels, {"attrs": "25.4"})) == ["cattrs"]


def test_only_requirements_that_apply_are_looked_at(folder):
    requires = [
        "exceptiongroup>=1; python_version < '3.11'",
        "hypothesis; extra == 'tests'",
        "huggingface-hub>=0.16",  # tokenizers declares it, and our imports do not reach it
    ]
    wheels = wheels_of(make_wheel(folder, "tokenizers", "0.23", {}, requires=requires))
    assert names(wheel_folder.choose(["tokenizers"], wheels, {})) == ["tokenizers"]


def test_all_that_is_missing_is_named(folder):
    wheels = wheels_of(make_wheel(folder, "flax", "0.12.8", {}, requires=["jax>=0.10", "msgpack"]))
    with pytest.raises(IncompleteError) as caught:
        wheel_folder.choose(["flax", "numpy>=2.0"], wheels, {"jax": "0.7.2", "numpy": "1.26"})
    assert str(caught.value) == (
        "jax>=0.10 for flax (0.7.2 is installed), msgpack for flax (not installed), "
        "numpy>=2.0 (1.26 is installed)"
    )


def test_two_wheels_that_disagree_are_not_mixed(folder):
    wheels = wheels_of(
        make_wheel(folder, "tokenizers", "0.23", {}),
        make_wheel(folder, "transformers", "5.0", {}, requires=["tokenizers<0.22"]),
    )
    with pytest.raises(IncompleteError, match=r"tokenizers<0\.22 for transformers"):
        wheel_folder.choose(["tokenizers", "transformers"], wheels, {})


def test_all_that_asks_for_a_package_counts(folder):
    wheels = wheels_of(
        make_wheel(folder, "attrs", "25.0", {}),
        make_wheel(folder, "cattrs", "26.2", {}, requires=["attrs<25.5"]),
    )
    assert names(wheel_folder.choose(["cattrs"], wheels, {"attrs": "25.5"})) == ["cattrs", "attrs"]
    with pytest.raises(IncompleteError, match=r"attrs<25\.5 for cattrs \(25\.5 is installed\)"):
        wheel_folder.choose(["attrs>=25.4", "cattrs"], wheels, {"attrs": "25.5"})


def test_packages_of_the_machine_do_not_come_from_the_folder(folder):
    files = [
        make_wheel(folder, name, "99.0", {}).name
        for name in ("torch", "jax", "jaxlib", "numpy", "nvidia-cublas", "attrs")
    ]
    assert list(wheel_folder.usable_wheels(folder, files)) == ["attrs"]


def test_wheels_of_another_python_are_passed_over(folder):
    pure, other = make_wheel(folder, "attrs", "26.1", {}), make_wheel(folder, "pyyaml", "6.0", {})
    renamed = other.rename(folder / "pyyaml-6.0-cp39-cp39-manylinux_2_28_x86_64.whl")
    assert list(wheel_folder.usable_wheels(folder, [pure.name, renamed.name])) == ["attrs"]


def test_the_first_of_two_installed_versions_counts(tmp_path, monkeypatch):
    for name, version in (("first", "2.0"), ("second", "1.0")):
        wheel = make_wheel(tmp_path / "wheels", "made-up", version, {})
        wheel_folder.unpack(wheel_folder.read_wheel(wheel), tmp_path / name)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "first"), str(tmp_path / "second")])
    assert wheel_folder.installed_versions() == {"made-up": "2.0"}
    assert python_environment() == [{"name": "made-up", "version": "2.0"}]


def test_programs_of_a_wheel_stay_executable(folder, tmp_path):
    path = make_wheel(folder, "made-up", "1.0", {"made_up.py": ""})
    with zipfile.ZipFile(path, "a") as archive:
        entry = zipfile.ZipInfo("made_up_program")
        entry.external_attr = 0o755 << 16
        archive.writestr(entry, "#!/bin/sh\n")
    wheel_folder.unpack(wheel_folder.read_wheel(path), tmp_path / "site")
    assert os.access(tmp_path / "site" / "made_up_program", os.X_OK)
    assert (tmp_path / "site" / "made_up.py").is_file()


def test_a_damaged_wheel_is_reported(folder, tmp_path):
    path = make_wheel(folder, "attrs", "26.1", {"attrs.py": "x" * 1000})
    wheel = wheel_folder.read_wheel(path)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(FolderError, match=r"attrs-26\.1-py3-none-any\.whl is damaged"):
        wheel_folder.read_wheel(path)
    with pytest.raises(FolderError, match="cannot be unpacked"):
        wheel_folder.unpack(wheel, tmp_path / "site")
    with pytest.raises(FolderError, match=r"absent\.whl is damaged"):
        wheel_folder.read_wheel(folder / "absent.whl")


def test_a_wheel_that_needs_an_installer_is_refused(folder, tmp_path):
    path = make_wheel(folder, "made-up", "1.0", {"made_up-1.0.data/scripts/x": ""})
    with pytest.raises(FolderError, match="can only be installed with pip"):
        wheel_folder.unpack(wheel_folder.read_wheel(path), tmp_path / "site")


def test_floors_of_the_groups_are_those_of_the_project():
    project = tomllib.loads((bootstrap.CHECKOUT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert set(wheel_folder.GROUPS["tests"]) <= set(extras["dev"])
    assert set(wheel_folder.GROUPS["page"]) <= set(extras["report"])
