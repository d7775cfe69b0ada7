"""The wheel is complete, and works without the checkout."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import results_support
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
# The contents of the wheel, and their sources.
PACKAGED = {
    "common_benchmark_suite/openxla/": "openxla/",
    "comparative_benchmark/": "comparative_benchmark/",
    "benchmarks/_template/": "comparative_benchmark/interop/milabench/template_files/",
}


def _run(*command, cwd, **variables):
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    options = ("--no-deps", "--quiet", "--disable-pip-version-check", "--wheel-dir", folder)
    done = _run(sys.executable, "-m", "pip", "wheel", *options, ROOT, cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    [path] = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Runs `cbs` of the wheel, with the installed packages but without the checkout."""
    folder = tmp_path_factory.mktemp("installed")
    zipfile.ZipFile(wheel).extractall(folder)

    def run(*arguments, cwd, **variables):
        command = (sys.executable, "-P", "-m", "comparative_benchmark", *arguments)
        return _run(*command, cwd=cwd, PYTHONPATH=str(folder), **variables)

    run.folder = folder
    return run


def test_every_file_of_the_packages_is_in_the_wheel(wheel):
    tracked = _run("git", "ls-files", *PACKAGED, cwd=ROOT).stdout.splitlines()
    assert len(tracked) > 300
    there = set(zipfile.ZipFile(wheel).namelist())
    wanted = set()
    for name in tracked:
        [(source, target)] = [item for item in PACKAGED.items() if name.startswith(item[0])]
        wanted.add(target + name.removeprefix(source))
    assert sorted(wanted - there) == []


def test_the_wheel_works_outside_of_the_checkout(installed, tmp_path):
    where = _run(
        *(sys.executable, "-P", "-c", "import comparative_benchmark as c; print(c.__file__)"),
        cwd=tmp_path,
        PYTHONPATH=str(installed.folder),
    )
    assert where.stdout.startswith(str(installed.folder))
    listed = installed("list", "--json", cwd=tmp_path)
    assert listed.returncode == 0, listed.stderr
    assert len(json.loads(listed.stdout)) > 1000
    results_support.write(tmp_path / "results.json")
    shown = installed("report", "results.json", "-o", "page.html", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "<html" in (tmp_path / "page.html").read_text()


@pytest.mark.frameworks
def test_the_cases_of_the_quickstart_run_from_the_wheel(installed, tmp_path):
    done = installed(
        *("run", "-name", "models/(BERT|RESNET)_TINY_FP32_(JAX|PT)_.+_BATCH1/.+DEFAULT"),
        *("--backend", "jax_xla,pt_inductor:eager", "-w", "1", "-iter", "2", "-o", "r.json"),
        cwd=tmp_path,
        CBS_ROOT_DIR=str(tmp_path / "root"),
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    ended = [case["status"] for case in json.loads((tmp_path / "r.json").read_text())["benchmarks"]]
    assert ended == ["ok"] * 4


def test_a_release_has_the_tag_of_its_version():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    script = ROOT / "scripts" / "release_tag.sh"
    assert _run(script, f"v{version}", cwd=ROOT).returncode == 0
    for wrong in (version, f"v{version}.1", "", "main"):
        done = _run(script, wrong, cwd=ROOT)
        assert done.returncode == 1
        assert f"v{version}" in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_a_note_to_the_reader_is_of_a_kind_that_there_is():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
    kinds = "|".join(kind["directory"] for kind in settings["type"])
    notes = [path.name for path in (ROOT / settings["directory"]).iterdir()]
    assert "README.md" in notes
    odd = [n for n in notes if not re.fullmatch(rf"(\+[\w-]+|\d+)\.({kinds})\.md|README\.md", n)]
    assert odd == []
    assert settings["start_string"] in (ROOT / settings["filename"]).read_text()


def test_every_requirement_of_a_locked_package_is_checked(monkeypatch):
    spec = importlib.util.spec_from_file_location("lock", ROOT / "scripts" / "lock.py")
    lock = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(lock)
    packages = {"a": ["c>=1", "b"], "b": ["c<2"], "c": []}
    versions = {"a": "1", "b": "1", "c": "1.5"}
    monkeypatch.setattr(
        lock,
        "distribution",
        lambda name: SimpleNamespace(version=versions[name], requires=packages[name]),
    )
    assert lock.closure([Requirement("a")]) == versions
    for version, text in {"0.9": "c>=1", "2.1": "c<2"}.items():
        versions["c"] = version
        with pytest.raises(SystemExit, match=f"{text} is required, but {version} is installed"):
            lock.closure([Requirement("a")])


def test_every_extra_is_on_the_page_about_installation():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    page = (ROOT / "docs" / "getting-started" / "install.md").read_text()
    assert [e for e in project["optional-dependencies"] if f"| `{e}` |" not in page] == []


CONTAINERS = sorted((ROOT / "containers").glob("*.Containerfile"))


@pytest.mark.parametrize("path", CONTAINERS, ids=lambda path: path.stem)
def test_a_container_file_is_sound(path):
    text = path.read_text().replace("\\\n", " ")
    steps = [line.split(maxsplit=1) for line in text.splitlines() if line and line[0] != "#"]
    words = {"FROM", "ARG", "RUN", "COPY", "ENV", "USER", "WORKDIR", "ENTRYPOINT", "CMD"}
    assert {word for word, _ in steps} <= words
    assert steps[0][0] == "FROM"
    assert not steps[0][1].endswith(":latest")
    said = dict(steps)
    assert said["USER"] == "cbs"
    assert said["ENTRYPOINT"] == '["cbs"]'
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [extras] = [value.partition("=")[2] for word, value in steps if "EXTRAS=" in value]
    pinned = [pin for extra in extras.split(",") for pin in project["optional-dependencies"][extra]]
    # Further packages are in the versions of the extras.
    for name, version in re.findall(r"([a-z]+)(?:\[\w+\])?==([\d.]+)", text):
        assert f"{name}=={version}" in pinned


@pytest.mark.parametrize("path", CONTAINERS, ids=lambda path: path.stem)
def test_a_container_builds(path):
    builder = shutil.which("podman") or shutil.which("docker")
    if builder is None:
        pytest.skip("neither podman nor docker is installed")
    usable = _run(builder, "info", cwd=ROOT)
    if usable.returncode:
        pytest.skip(f"{Path(builder).name} cannot build here: {usable.stderr.strip()[:200]}")
    # Without extras: our package is built, and nothing large is fetched.
    options = ("--build-arg", "EXTRAS=report", "--build-arg", "PLUGINS=", "--tag", "cbs-test")
    done = _run(builder, "build", "--file", path, *options, ".", cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    listed = _run(builder, "run", "--rm", "cbs-test", "list", "--json", cwd=ROOT)
    assert len(json.loads(listed.stdout)) > 1000
