"""`scripts/gpu_check.sh` and `scripts/gpu_wheels.sh`, run for real on machines without a GPU."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from wheel_support import make_wheel

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
CHECK, WHEELS = ROOT / "scripts" / "gpu_check.sh", ROOT / "scripts" / "gpu_wheels.sh"
# A machine that has JAX, and no other package that the suite needs.
JAX_PACKAGES = ("jax", "jaxlib", "numpy", "ml_dtypes", "scipy", "opt_einsum")
# Hides GPUs if there are any.
HIDDEN = {"CUDA_VISIBLE_DEVICES": ""}


def _run(*command, cwd=ROOT, timeout_s=600, **environment):
    variables = {**os.environ, **HIDDEN, "PYTHON": sys.executable, **environment}
    for name in ("CBS_GPU_WHEELS", "PYTHONPATH"):
        if name not in environment:
            variables.pop(name, None)
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=variables,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def _link_packages(names, site):
    """Makes installed packages importable from a folder, and nothing else."""
    for name in names:
        found = distribution(name)
        tops = {Path(file).parts[0] for file in found.files or () if ".." not in file.parts}
        for top in tops - {"__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(found.locate_file(top))


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """An interpreter with jax, jaxlib, numpy and what they need: no pip, nothing of ours."""
    venv = tmp_path_factory.mktemp("bare") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    _link_packages(JAX_PACKAGES, venv / "lib" / f"python{PYTHON}" / "site-packages")
    return venv / "bin" / "python"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of the suite, whose files can be counted."""
    target = tmp_path_factory.mktemp("checkout") / "suite"
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("comparative_benchmark", "common_benchmark_suite"):
        shutil.copytree(ROOT / name, target / name, ignore=ignore)
    shutil.copytree(ROOT / "scripts/gpu_check", target / "scripts/gpu_check", ignore=ignore)
    for name in ("pyproject.toml", "scripts/gpu_check.sh", "scripts/environment.sh"):
        shutil.copy(ROOT / name, target / name)
    return target


# Without a GPU.


@pytest.mark.parametrize("arguments", [(), ("--output", "x"), ("--exec", "-c", "print(1)")])
def test_without_a_gpu_there_is_one_line_and_3(arguments, tmp_path, bare):
    # Before any other failure: neither wheels nor a temporary folder exist.
    for python in (sys.executable, bare):
        done = _run(CHECK, *arguments, cwd=tmp_path, PYTHON=str(python))
        assert (done.returncode, done.stdout) == (3, "")
        assert re.fullmatch(
            r"gpu_check: no NVIDIA GPU found \(.+--device host-cpu.*\n", done.stderr
        )
    assert list(tmp_path.iterdir()) == []


def test_an_unsupported_python_is_reported(tmp_path):
    done = _run(CHECK, PYTHON="/bin/false")
    assert done.returncode == 1
    assert done.stderr == (
        "gpu_check: not Python 3.11 to 3.13: /bin/false; choose one with PYTHON=...\n"
    )


def test_the_python_with_a_framework_is_taken(tmp_path, bare):
    empty = tmp_path / "empty"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(empty)], check=True)
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "python3").symlink_to(empty / "bin" / "python")
    (programs / "python3.12").write_text(f'#!/bin/sh\nexec "{bare}" "$@"\n')
    (programs / "python3.12").chmod(0o755)
    path = f"{programs}:/usr/bin:/bin"
    done = _run(CHECK, "--device", "host-cpu", PATH=path, PYTHON="")
    assert f"`./scripts/gpu_wheels.sh --python {PYTHON}`" in done.stderr
    assert "neither torch nor jax" not in done.stderr
    done = _run(CHECK, "--device", "host-cpu", PYTHON=str(empty / "bin" / "python"))
    assert done.returncode == 1
    assert "neither torch nor jax" in done.stderr


# With a GPU or its rehearsal.


def test_a_bare_machine_gets_the_command_for_a_wheel_folder(bare):
    done = _run(CHECK, "--device", "host-cpu", PYTHON=str(bare))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "attrs>=24.2" in done.stderr
    assert f"`./scripts/gpu_wheels.sh --python {PYTHON}`" in done.stderr


def test_an_installed_suite_is_found_once(tmp_path):
    program = (
        "from importlib.metadata import entry_points, version\n"
        "found = [point.name for point in entry_points(group='comparative_benchmark.backends')]\n"
        "import comparative_benchmark, json\n"
        "print(json.dumps([found, version('common-benchmark-suite'), "
        "comparative_benchmark.__file__]))"
    )
    done = _run(CHECK, "--device", "host-cpu", "--exec", "-c", program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found, version, file = json.loads(done.stdout)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert len(found) == len(set(found))
    assert set(project["entry-points"]["comparative_benchmark.backends"]) <= set(found)
    assert version == project["version"]
    assert file == str(ROOT / "comparative_benchmark" / "__init__.py")


@pytest.mark.frameworks
@pytest.mark.nightly
def test_a_bare_machine_runs_with_wheels_and_checkout(bare, checkout, tmp_path):
    folder, temporary = tmp_path / "wheels", tmp_path / "tmp"
    temporary.mkdir()
    leave = ("tests", "page", "torch-models", "iree")
    without = [word for group in leave for word in ("--without", group)]
    made = _run(WHEELS, "--python", PYTHON, "--output", folder, *without, "--no-programs")
    assert made.returncode == 0, made.stderr
    before = sorted(checkout.rglob("*"))

    def check(*arguments):
        return _run(
            *(checkout / "scripts" / "gpu_check.sh", "--device", "host-cpu", "--wheels", "wheels"),
            *("--exec", "-m", "comparative_benchmark", *arguments),
            cwd=tmp_path,
            PYTHON=str(bare),
            TMPDIR=str(temporary),
            CBS_ROOT_DIR=str(tmp_path / "root"),
        )

    listed = check("backends")
    assert listed.returncode == 0, listed.stderr
    assert "jax_xla (jax models; installed)" in listed.stdout
    assert re.search(r"^pt_inductor \(pytorch models; needs torch", listed.stdout, re.MULTILINE)
    name = "models/BERT_TINY_FP32_JAX_32XI32_BATCH1/.+DEFAULT"
    counts = ("-w", "1", "-iter", "2", "--processes", "1")
    ran = check(
        *("run", "--backend", "jax_xla", "-name", name, "-device", "host-cpu", *counts),
        *("-o", "results.json"),
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    document = json.loads((tmp_path / "results.json").read_text())
    assert [record["status"] for record in document["benchmarks"]] == ["ok"]
    # The result lists the unpacked packages. They are removed, and the checkout is unchanged.
    packages = {p["name"].lower() for p in document["execution_environment"]["python_environment"]}
    assert {"flax", "attrs", "packaging", "common-benchmark-suite"} <= packages
    assert "torch" not in packages
    assert list(temporary.iterdir()) == []
    assert sorted(checkout.rglob("*")) == before


# The folder.


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """A package index without a network: empty wheels of all that the locks name."""
    folder = tmp_path_factory.mktemp("index")
    locks = [*ROOT.glob("comparative_benchmark/*/requirements.txt"), ROOT / "requirements/dev.txt"]
    lines = {line for lock in locks for line in lock.read_text().splitlines() if "==" in line}
    requires = {
        "flax": ["jax>=0.10", "msgpack", "rich", "tensorstore"],
        "transformers": ["regex", "numpy"],
    }
    large = {"iree-base-runtime": {"iree.bin": "x" * 2_000_000}}
    for name, version in (line.split("==") for line in lines):
        make_wheel(folder, name, version, large.get(name, {}), requires=requires.get(name, ()))
    return folder


@pytest.fixture
def make(index, tmp_path):
    """Makes a folder from the index without a network."""

    def call(*arguments, source=index, **environment):
        variables = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"}
        variables |= {"PIP_FIND_LINKS": str(source), **environment}
        common = ("--python", "3.12", "--output", tmp_path / "wheels", "--no-programs")
        return _run(WHEELS, *common, *arguments, **variables)

    return call


def _contents(folder):
    return json.loads((folder / "CONTENTS.json").read_text())


def test_the_folder_holds_its_groups_and_nothing_of_the_machine(make, tmp_path):
    done = make("--without", "tests", "--without=page", "--limit-mb", "1")
    assert done.returncode == 0, done.stderr
    contents = _contents(tmp_path / "wheels")
    assert (contents["python"], contents["programs"]) == ("3.12", False)
    assert list(contents["groups"]) == ["core", "jax-models", "torch-models"]
    names = {
        group: [name.partition("-")[0] for name in files]
        for group, files in contents["groups"].items()
    }
    assert "numpy" not in names["core"]
    assert names["jax-models"] == ["flax", "msgpack"]
    assert names["torch-models"] == ["transformers", "regex"]
    files = {path.name for path in (tmp_path / "wheels").glob("*.whl")}
    assert files == {name for group in contents["groups"].values() for name in group}
    # The message for a group that does not fit names a limit that is large enough.
    said = re.search(r"^iree +omitted: 2\.0 MB .*--limit-mb (\d+)", done.stdout, re.MULTILINE)
    done = make("--without=tests", "--without=page", "--limit-mb", said[1])
    assert "iree" in _contents(tmp_path / "wheels")["groups"], done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["wheels"]


def test_another_version_than_that_of_the_locks_can_be_taken(make, index, tmp_path):
    more = tmp_path.parent / f"{tmp_path.name}-more"
    shutil.copytree(index, more)
    make_wheel(more, "flax", "99.0", {}, requires=["msgpack"])
    only_jax = [f"--without={group}" for group in ("tests", "page", "torch-models", "iree")]
    done = make(*only_jax, "--take", "Flax==99.0", source=more)
    assert done.returncode == 0, done.stderr
    assert "flax-99.0-py3-none-any.whl" in _contents(tmp_path / "wheels")["groups"]["jax-models"]
    refused = make(*only_jax, "--take", "flax")
    assert refused.returncode == 2
    assert "expected NAME==VERSION, got 'flax'" in refused.stderr


def test_a_folder_that_cannot_be_made_leaves_the_old_one(make, index, tmp_path):
    short = tmp_path.parent / f"{tmp_path.name}-short"
    shutil.copytree(index, short)
    for path in short.glob("msgpack-*"):
        path.unlink()
    only_jax = [f"--without={group}" for group in ("tests", "page", "torch-models", "iree")]
    done = make(*only_jax, source=short)
    assert done.returncode == 1
    assert re.match(r"gpu_wheels: pip cannot download msgpack: .*msgpack", done.stderr)
    assert list(tmp_path.iterdir()) == []
    assert make(*only_jax, "--without", "jax-models").returncode == 0
    before = _contents(tmp_path / "wheels")
    assert make(*only_jax, source=short).returncode == 1
    assert _contents(tmp_path / "wheels") == before
    assert make(*only_jax, "--limit-mb", "0.001").returncode == 1
    assert [path.name for path in tmp_path.iterdir()] == ["wheels"]


def test_another_folder_is_not_replaced(make, tmp_path):
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "mine").write_text("")
    done = make()
    assert done.returncode == 1
    assert "exists and is not a wheel folder" in done.stderr
    assert (tmp_path / "wheels" / "mine").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--python", "3.10"], "unsupported Python version '3.10'; choices are 3.11"),
        (["--without", "core"], "invalid choice"),
    ],
)
def test_usage_errors_of_the_folder(make, arguments, words):
    done = make(*arguments)
    assert done.returncode == 2
    assert words in done.stderr


# The programs.


@pytest.fixture
def script(monkeypatch):
    """`scripts/gpu_wheels.py` as a module."""
    spec = importlib.util.spec_from_file_location("gpu_wheels", ROOT / "scripts" / "gpu_wheels.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def exporter(script, tmp_path, monkeypatch):
    """An exporter that writes 1 MB for each model except the given ones; and an empty folder."""
    outcomes = {}

    def cbs(command, *arguments):
        if command == "publish":
            shutil.copytree(arguments[0], arguments[1])
            return 0, ""
        for name in script.MODELS:
            failure = outcomes.get(name)
            made = [] if failure else [{"artifact_type": name} for name in script.PROGRAM_TYPES]
            model = Path(arguments[arguments.index("-o") + 1]) / name
            model.mkdir(parents=True)
            (model / "model_cuda.vmfb").write_bytes(bytes(1_000_000))
            failures = [{"artifact_type": "vmfb_cuda", "reason": failure}] if failure else []
            manifest = {"files": made, "failures": failures}
            (model / "manifest.json").write_text(json.dumps(manifest))
        return 1 if outcomes else 0, "some failed"

    monkeypatch.setattr(script, "_cbs", cbs)
    (tmp_path / "folder").mkdir()
    return outcomes


def _published(tmp_path):
    return {path.name for path in (tmp_path / "folder" / "programs").iterdir()}


def test_models_are_those_of_the_suite(script):
    done = _run(sys.executable, "-m", "comparative_benchmark", "list", "--json")
    assert set(script.MODELS) <= {case["model"] for case in json.loads(done.stdout)}


def test_a_model_that_cannot_be_compiled_is_named(script, exporter, tmp_path, capsys):
    exporter[script.MODELS[1]] = "iree-compile:\n failed to distribute"
    assert script.add_programs(tmp_path / "folder", tmp_path, 40_000_000)
    assert _published(tmp_path) == {*script.MODELS} - {script.MODELS[1]}
    said = f"{script.MODELS[1]} omitted: iree-compile: failed to distribute\n"
    assert said in capsys.readouterr().out


def test_programs_keep_to_the_limit(script, exporter, tmp_path, capsys):
    assert script.add_programs(tmp_path / "folder", tmp_path, 2_500_000)
    assert _published(tmp_path) == set(script.MODELS[:2])
    out = capsys.readouterr().out
    assert out.count("omitted: 1.0 MB in addition to 2.0 MB") == len(script.MODELS) - 2
    assert "--limit-mb 4, " in out


def test_without_any_program_there_is_no_store(script, exporter, tmp_path, capsys):
    assert not script.add_programs(tmp_path / "folder", tmp_path, 500_000)
    assert list((tmp_path / "folder").iterdir()) == []


def test_an_exporter_that_does_not_run_is_an_error(script, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "_cbs", lambda *_: (1, "cbs: --types: no type vmfb_cuda"))
    with pytest.raises(script.WheelsError, match=r"exit code 1\): cbs: --types: no type"):
        script.add_programs(tmp_path, tmp_path, 40_000_000)


@pytest.mark.frameworks
@pytest.mark.nightly
def test_a_tiny_model_is_compiled_for_cuda_and_published(script, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "MODELS", script.MODELS[:1])
    monkeypatch.delenv("CBS_ROOT_DIR", raising=False)
    (tmp_path / "folder").mkdir()
    assert script.add_programs(tmp_path / "folder", tmp_path, 40_000_000)
    assert _published(tmp_path) == set(script.MODELS)
    manifest = tmp_path / "folder" / "programs" / script.MODELS[0] / "manifest.json"
    files = json.loads(manifest.read_text())["files"]
    assert {file["artifact_type"] for file in files} == set(script.PROGRAM_TYPES)
