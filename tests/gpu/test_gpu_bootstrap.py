"""Start of the GPU check: detection of a GPU, missing packages, environment."""

import json
import os
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest
from wheel_support import make_wheel

from gpu_check import bootstrap, wheel_folder
from gpu_check.bootstrap import SetUpError

PROJECT = tomllib.loads((bootstrap.CHECKOUT / "pyproject.toml").read_text())["project"]
CORE = {"attrs": "26.1", "cattrs": "26.2"}


# Detection of a GPU.


class Driver:
    """The functions of libcuda.so.1 that the check calls."""

    def __init__(self, *, init=0, count_code=0, count=1):
        self._init, self._count_code, self._count = init, count_code, count

    def cuInit(self, flags):  # noqa: N802
        assert flags == 0
        return self._init

    def cuDeviceGetCount(self, pointer):  # noqa: N802
        pointer._obj.value = self._count
        return self._count_code


def no_library(name):
    raise OSError(f"{name}: cannot open shared object file")


def problem(driver=None, *, listed=0):
    load = (lambda name: driver) if driver else no_library
    return bootstrap.gpu_problem(load, lambda: listed)


def test_a_gpu_is_no_problem():
    assert problem(Driver()) is None
    assert problem(Driver(count=8)) is None


@pytest.mark.parametrize(
    ("driver", "listed", "words"),
    [
        (None, 0, "no NVIDIA GPU found (libcuda.so.1 cannot be loaded)"),
        (None, 1, "cannot be used: nvidia-smi lists a GPU, but libcuda.so.1 cannot be loaded"),
        (Driver(init=100), 0, "no NVIDIA GPU found (the driver reports none"),
        (Driver(count=0), 0, "no NVIDIA GPU found (the driver reports none"),
        (Driver(init=803), 0, "cannot be used: cuInit returned error 803"),
        (Driver(count_code=3), 0, "cannot be used: cuDeviceGetCount returned error 3"),
    ],
)
def test_a_problem_is_one_line_with_the_way_out(driver, listed, words):
    found = problem(driver, listed=listed)
    assert words in found
    assert "--device host-cpu" in found
    assert "\n" not in found


def test_a_hidden_gpu_is_reported(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert "CUDA_VISIBLE_DEVICES" not in problem(Driver(init=100))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "with CUDA_VISIBLE_DEVICES=''" in problem(Driver(init=100))


@pytest.mark.parametrize(
    ("script", "gpus"),
    [
        ("echo 'GPU 0: NVIDIA H100 (UUID: GPU-1)'; echo '  MIG 1g.10gb Device 0: (UUID: x)'", 1),
        ("echo 'NVIDIA-SMI has failed because it could not communicate'; exit 9", 0),
        ("echo 'No devices found.'", 0),
        (None, 0),
    ],
)
def test_nvidia_smi_lists_gpus(script, gpus, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    if script:
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    assert bootstrap.gpus_of_nvidia_smi() == gpus


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "wheels"


# Set-up.


def make_folder(folder, groups):
    """Writes a wheel folder: versions by name, by group."""
    files = {
        group: [make_wheel(folder, name, version, {}).name for name, version in packages.items()]
        for group, packages in groups.items()
    }
    contents = {"python": "3.12", "groups": files, "programs": False}
    folder.mkdir(exist_ok=True)
    (folder / wheel_folder.CONTENTS).write_text(json.dumps(contents))
    return folder


@pytest.fixture
def machine(monkeypatch):
    """A machine whose packages the test names; its project needs attrs and cattrs only."""
    installed = {"jax": "0.11.2", "numpy": "2.5.0"}
    project = {**PROJECT, "dependencies": ["attrs>=24.2", "cattrs>=24.1", "numpy>=2.0"]}
    monkeypatch.setattr(wheel_folder, "installed_versions", lambda: dict(installed))
    monkeypatch.setattr(tomllib, "loads", lambda _: {"project": project})
    for name in (bootstrap.WHEELS_VARIABLE, "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)
    return installed


def test_only_what_is_missing_is_unpacked(machine, folder, tmp_path):
    machine["cattrs"] = "25.0"
    wheels = make_folder(folder, {"core": CORE, "tests": {"pytest": "9.2"}})
    made = bootstrap.set_up(tmp_path, wheels)
    assert made.installed_from_wheels == {"attrs": "26.1", "pytest": "9.2"}
    assert made.missing_groups == {
        "page": "jinja2>=3.1 (not installed)",
        "jax-models": "flax (not installed)",
        "torch-models": "torch (not installed), transformers (not installed)",
        "iree": "iree-base-runtime (not installed)",
    }
    assert sorted(path.name for path in (tmp_path / "site").iterdir()) == [
        "attrs-26.1.dist-info",
        "common_benchmark_suite-0.1.0.dist-info",
        "pytest-9.2.dist-info",
    ]
    assert json.loads((tmp_path / "bootstrap.json").read_text()) == {
        "installed_from_wheels": made.installed_from_wheels,
        "missing_groups": made.missing_groups,
    }


def test_shared_packages_of_groups_are_unpacked_once(machine, folder, tmp_path, monkeypatch):
    wheels = make_folder(folder, {"core": CORE, "tests": {"pytest": "9.2"}})
    make_wheel(folder, "pytest", "9.2", {}, requires=["attrs"])
    unpacked = []
    monkeypatch.setattr(wheel_folder, "unpack", lambda wheel, site: unpacked.append(wheel.name))
    bootstrap.set_up(tmp_path, wheels)
    assert unpacked == ["attrs", "cattrs", "pytest"]


def test_without_a_folder_the_machine_may_have_all(machine, tmp_path):
    machine |= CORE
    made = bootstrap.set_up(tmp_path, None)
    assert made.installed_from_wheels == {}
    assert "iree" in made.missing_groups


def test_a_damaged_group_costs_that_group(machine, folder, tmp_path):
    wheels = make_folder(folder, {"core": CORE, "page": {"jinja2": "3.1"}})
    next(wheels.glob("jinja2-*")).write_bytes(b"PK")
    made = bootstrap.set_up(tmp_path, wheels)
    assert made.installed_from_wheels == CORE
    assert "jinja2-3.1-py3-none-any.whl is damaged" in made.missing_groups["page"]


@pytest.mark.parametrize(
    ("packages", "numpy", "words"),
    [
        ({"attrs": "26.1"}, "2.5", "cattrs>=24.1 (not installed)"),
        (CORE, "1.26.4", "numpy>=2.0 (1.26.4 is installed)"),
    ],
)
def test_an_incomplete_core_names_a_remedy(machine, folder, tmp_path, packages, numpy, words):
    machine["numpy"] = numpy
    with pytest.raises(SetUpError) as caught:
        bootstrap.set_up(tmp_path, make_folder(folder, {"core": packages}))
    assert words in str(caught.value)
    assert "attrs>=24.2" not in str(caught.value).replace(words, "")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"`./scripts/gpu_wheels.sh --python {version}`" in str(caught.value)


def test_without_packaging_and_folder_the_core_is_named(machine, tmp_path, monkeypatch):
    monkeypatch.setattr(wheel_folder, "import_packaging", lambda folder: False)
    with pytest.raises(SetUpError, match=r"cattrs>=24\.1.*gpu_wheels\.sh --python"):
        bootstrap.set_up(tmp_path, None)


def test_another_folder_is_refused(machine, tmp_path):
    with pytest.raises(SetUpError, match=r"was not created by \./scripts/gpu_wheels\.sh"):
        bootstrap.set_up(tmp_path, tmp_path)


def test_a_python_without_frameworks_is_refused(machine, tmp_path, monkeypatch):
    monkeypatch.setattr(bootstrap.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SetUpError, match=r"neither torch nor jax; set PYTHON to a Python with one"):
        bootstrap.set_up(tmp_path, None)


def test_the_checkout_looks_installed(tmp_path):
    bootstrap.write_metadata(PROJECT, tmp_path)
    [found] = distributions(path=[str(tmp_path)])
    assert (found.metadata["Name"], found.version) == (PROJECT["name"], PROJECT["version"])
    declared = {
        (group, name, target)
        for group, points in PROJECT["entry-points"].items()
        for name, target in points.items()
    }
    assert declared < {(point.group, point.name, point.value) for point in found.entry_points}
    assert set(PROJECT["dependencies"]) < set(found.requires)
    assert set(PROJECT["optional-dependencies"]) == set(found.metadata.get_all("Provides-Extra"))


def test_our_own_code_comes_first_on_the_path(tmp_path, monkeypatch):
    checkout = str(bootstrap.CHECKOUT)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([checkout, "/others", ""]))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    variables = bootstrap.environment_of(tmp_path)
    assert variables["PYTHONPATH"].split(os.pathsep) == [
        str(tmp_path / "site"),
        checkout,
        f"{checkout}/common_benchmark_suite",
        f"{checkout}/scripts",
        "/others",
    ]
    # Bytecode goes to the temporary folder, so that each process need not compile again.
    assert "PYTHONDONTWRITEBYTECODE" not in variables
    assert Path(variables["PYTHONPYCACHEPREFIX"]).parent == tmp_path
    assert variables["CBS_GPU_CHECK_WORK"] == str(tmp_path)


def test_the_driver_that_is_loaded_is_found(tmp_path):
    maps = tmp_path / "maps"
    line = "7f0000000000-7f0000001000 r-xp 00000000 08:01 42    "
    maps.write_text(f"{line}/usr/lib/libc.so.6\n{line}\n{line}/opt/a b/libcuda.so.580.1\n")
    assert bootstrap.loaded_driver(maps) == Path("/opt/a b/libcuda.so.580.1")
    maps.write_text(f"{line}/usr/lib/libcudart.so.13\n")
    assert bootstrap.loaded_driver(maps) is None
    assert bootstrap.loaded_driver() is None  # this process has loaded no driver


def test_the_driver_gets_the_name_by_which_iree_looks_for_it(tmp_path, monkeypatch):
    driver = tmp_path / "libcuda.so.580.1"
    driver.touch()
    monkeypatch.setattr(bootstrap, "loaded_driver", lambda: driver)
    monkeypatch.setenv("LD_LIBRARY_PATH", "/given")
    given, own = bootstrap.environment_of(tmp_path)["LD_LIBRARY_PATH"].split(os.pathsep)
    assert given == "/given"
    assert (Path(own) / "libcuda.so").resolve() == driver


def test_the_wheel_folder_is_found(tmp_path, monkeypatch):
    named, variable, checkout = tmp_path / "named", tmp_path / "variable", tmp_path / "checkout"
    monkeypatch.setattr(bootstrap, "CHECKOUT", checkout)
    monkeypatch.delenv(bootstrap.WHEELS_VARIABLE, raising=False)
    assert bootstrap.find_wheels(None) is None
    for path in (named, variable, checkout / ".gpu-wheels"):
        path.mkdir(parents=True)
    assert bootstrap.find_wheels(None) == checkout / ".gpu-wheels"
    monkeypatch.setenv(bootstrap.WHEELS_VARIABLE, str(variable))
    assert bootstrap.find_wheels(None) == variable
    monkeypatch.chdir(tmp_path)
    assert bootstrap.find_wheels(Path("named")) == named
    with pytest.raises(SetUpError, match=r"absent does not exist; .*--output absent"):
        bootstrap.find_wheels(Path("absent"))


# From the command line to the check.


class Replaced(Exception):  # noqa: N818  # not an error
    """Raised where the process would be replaced."""


@pytest.fixture
def start(machine, folder, tmp_path, monkeypatch):
    """Calls `main` on a machine with a GPU; returns exit code, or the command that it becomes."""
    make_folder(folder, {"core": CORE})
    monkeypatch.setattr(bootstrap, "gpu_problem", lambda: None)
    monkeypatch.setattr(bootstrap.tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()

    def replace(program, command, environment):
        seen = json.loads(
            (Path(environment[bootstrap.WORK_VARIABLE]) / bootstrap.SET_UP_FILE).read_text()
        )
        assert seen["installed_from_wheels"] == CORE
        raise Replaced(program, command)

    monkeypatch.setattr(bootstrap.os, "execve", replace)

    def call(*arguments):
        try:
            return bootstrap.main(arguments)
        except Replaced as replaced:
            program, command = replaced.args
            assert program == command[0] == sys.executable
            return command[1:]

    return call


CHECK = ["-P", "-m", "gpu_check", "--device"]


def test_options_are_passed_on(start, folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    wheels = ["--wheels", str(folder)]
    given = ["--output", "out", "--steps=matrix,faults", "--wheels", "wheels", "--minutes", "3"]
    more = ["--output", "out", "--steps=matrix,faults", "--minutes", "3"]
    assert start(*given) == [*CHECK, "host-gpu", *wheels, *more]
    assert start("--device", "host-cpu", *wheels) == [*CHECK, "host-cpu", *wheels]
    assert start(*wheels, "-h") == [*CHECK, "host-gpu", *wheels, "--help"]


def test_without_a_gpu_it_is_one_line_and_3(start, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bootstrap, "gpu_problem", lambda: "no NVIDIA GPU here")
    assert start("--wheels", "/absent") == bootstrap.EXIT_NO_GPU == 3
    assert capsys.readouterr().err == "gpu_check: no NVIDIA GPU here\n"
    # The rehearsal and the help ask for none.
    assert start("--device=host-cpu", "--wheels", str(folder))[:3] == CHECK[:3]
    assert start("--help", "--wheels", str(folder))[:3] == CHECK[:3]


def test_a_failed_start_leaves_nothing(start, tmp_path, capsys):
    assert start("--wheels", "/absent") == 1
    assert capsys.readouterr().err.startswith("gpu_check: the wheel folder /absent does not exist")
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_command_is_run_in_the_environment_and_cleaned_up(start, folder, tmp_path, capfd):
    program = "import os, sys; print(os.environ['CBS_GPU_CHECK_WORK'], *sys.argv[1:]); sys.exit(5)"
    assert start("--wheels", str(folder), "--exec", "-c", program, "--device", "x") == 5
    work, *rest = capfd.readouterr().out.split()
    assert rest == ["--device", "x"]
    assert Path(work).parent == tmp_path / "tmp"
    assert not Path(work).exists()


def test_a_wrong_device_is_a_usage_error(start, capsys):
    with pytest.raises(SystemExit) as caught:
        start("--device", "tpu")
    assert caught.value.code == 1
    assert "invalid choice: 'tpu'" in capsys.readouterr().err
