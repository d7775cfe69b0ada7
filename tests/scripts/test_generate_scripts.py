"""`scripts/generate_model_artifacts.sh` of each framework, with a recording environment."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUITE = ROOT / "common_benchmark_suite" / "openxla" / "benchmark" / "comparative_suite"
BACKENDS = {
    "pt": ("pt_inductor", "iree", "onnxruntime"),
    "jax": ("jax_xla", "xla_hlo", "iree", "tflite"),
    "tf": ("tf_xla", "xla_hlo", "iree", "tflite"),
}
FULL_NAMES = {"pt": "pytorch", "jax": "jax", "tf": "tensorflow"}

# Plays the environment's interpreter: prints a version, records each command, generates.
PYTHON = """#!{python}
import json, os, sys
from pathlib import Path
arguments = sys.argv[1:]
if arguments[0] == "-c" and "importlib.metadata" in arguments[1]:
    print("1.2.3")
    sys.exit()
if arguments[0] == "-c":
    os.execv({python!r}, [{python!r}, *arguments])
with open({log!r}, "a") as log:
    log.write(json.dumps(arguments) + "\\n")
if "generate" in arguments:
    output = Path(arguments[arguments.index("-o") + 1])
    for model in ("MODEL_A", "MODEL_B"):
        (output / model).mkdir(parents=True)
        (output / model / "manifest.json").write_text("{{}}")
    sys.exit(int(os.environ.get("GENERATE_CODE", 0)))
if arguments[:3] == ["-m", "pip", "list"]:
    print("a-package 1.0")
"""


class Recorder:
    """A script's environment, and the commands that ran in it."""

    def __init__(self, directory, framework):
        self.directory, self.framework = directory, framework
        self.venv, self.log = directory / "the venv", directory / "log.jsonl"
        python = self.venv / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(PYTHON.format(python=sys.executable, log=str(self.log)))
        python.chmod(0o755)
        self.variables = {
            **os.environ,
            "VENV_DIR": str(self.venv),
            "PYTHON": sys.executable,
            "TMPDIR": str(directory / "tmp"),
        }
        for name in ("GCS_UPLOAD_DIR", "AUTO_UPLOAD", "OUTPUT_DIR"):
            self.variables.pop(name, None)
        self._mark_as_installed()

    def _mark_as_installed(self):
        """Leaves the stamp of `ensure_environment`, so that nothing is installed."""
        locks = [
            str(ROOT / "comparative_benchmark" / name / "requirements.txt")
            for name in BACKENDS[self.framework]
        ]
        script = f"""
        source {shlex.quote(str(ROOT / "scripts" / "environment.sh"))}
        FOUND_PYTHON="$(find_python)"
        stamp=.cbs-stamp-$(echo {shlex.quote(" ".join(locks))} | sha256sum | cut -c1-12)
        fingerprint_of_locks > "{self.venv}/$stamp"
        """
        subprocess.run(["bash", "-eu", "-c", script], env=self.variables, check=True)

    def run(self, *arguments, **variables):
        script = SUITE / self.framework / "scripts" / "generate_model_artifacts.sh"
        return subprocess.run(
            [script, *arguments],
            env={**self.variables, **variables},
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    def commands(self, name):
        lines = map(json.loads, self.log.read_text().splitlines()) if self.log.exists() else ()
        return [line[3:] for line in lines if line[2:4] == ["artifacts", name]]


@pytest.fixture(params=sorted(BACKENDS))
def recorder(request, tmp_path):
    return Recorder(tmp_path, request.param)


def test_without_variables_it_generates_below_the_directory_for_temporary_files(recorder):
    done = recorder.run("EXAMPLE_FP32_PT_BATCH.+")
    assert done.returncode == 0, done.stderr
    ((_, *arguments),) = recorder.commands("generate")
    output = Path(arguments[-1])
    assert arguments == [
        *("-name", "EXAMPLE_FP32_PT_BATCH.+", "--framework", recorder.framework),
        *("-o", str(output)),
    ]
    assert output.parent == recorder.directory / "tmp"
    prefix, _, seconds = output.name.rpartition("_")
    assert prefix == f"{recorder.framework}_models_1.2.3"
    assert seconds.isdigit()
    assert (output / "models_version_info.txt").read_text() == "a-package 1.0\n"
    assert recorder.commands("publish") == []
    full_name = FULL_NAMES[recorder.framework]
    url = f"gs://iree-model-artifacts/{full_name}/{output.name}/MODEL_A"
    assert f"cbs artifacts publish {output}/MODEL_A {url}\n" in done.stdout


def test_without_a_filter_all_models_are_meant_and_options_are_passed_on(recorder):
    assert recorder.run().returncode == 0
    # The default directory is named after the second, and must be a new one.
    elsewhere = str(recorder.directory / "elsewhere")
    options = ["--types", "inputs", "--jobs", "2"]
    assert recorder.run("A.+", *options, OUTPUT_DIR=elsewhere).returncode == 0
    first, second = recorder.commands("generate")
    assert first[:3] == ["generate", "-name", ".*"]
    assert second[-4:] == ["--types", "inputs", "--jobs", "2"]


def test_upload_publishes_each_model_and_lets_the_local_copy_go(recorder):
    done = recorder.run("A.+", AUTO_UPLOAD="1", GCS_UPLOAD_DIR="gs://ours/some/where/")
    assert done.returncode == 0, done.stderr
    (generated,) = recorder.commands("generate")
    output = generated[-1]
    url = f"gs://ours/some/where/{Path(output).name}"
    assert recorder.commands("publish") == [
        ["publish", f"{output}/{model}", f"{url}/{model}", "--auto-upload"]
        for model in ("MODEL_A", "MODEL_B")
    ]


def test_the_output_can_be_elsewhere(recorder):
    output = recorder.directory / "else where"
    assert recorder.run("A.+", OUTPUT_DIR=str(output)).returncode == 0
    assert recorder.commands("generate")[0][-1] == str(output)


@pytest.mark.parametrize(("code", "publications"), [("1", 2), ("2", 2), ("3", 0), ("130", 0)])
def test_the_exit_code_is_that_of_the_generation(tmp_path, code, publications):
    recorder = Recorder(tmp_path, "pt")
    done = recorder.run("A.+", AUTO_UPLOAD="1", GENERATE_CODE=code)
    assert done.returncode == int(code)
    assert len(recorder.commands("publish")) == publications


@pytest.mark.parametrize(
    ("options", "published"),
    [([], ["MODEL_A", "MODEL_B"]), (["--resume"], ["MODEL_A", "MODEL_B", "MODEL_OLD"])],
)
def test_what_lay_there_before_is_published_only_when_resumed(tmp_path, options, published):
    recorder = Recorder(tmp_path, "pt")
    output = tmp_path / "the output"
    (output / "MODEL_OLD").mkdir(parents=True)
    (output / "MODEL_OLD" / "manifest.json").write_text("{}")
    done = recorder.run("A.+", *options, AUTO_UPLOAD="1", OUTPUT_DIR=str(output))
    assert done.returncode == 0, done.stderr
    assert [Path(command[1]).name for command in recorder.commands("publish")] == published


def test_an_environment_that_is_not_there_is_made_with_the_interpreter_that_is_named(tmp_path):
    recorder = Recorder(tmp_path, "pt")
    done = recorder.run("A.+", VENV_DIR=str(tmp_path / "new"), PYTHON="/bin/false")
    assert done.returncode != 0
    assert "PYTHON=/bin/false is not Python 3.11 to 3.13" in done.stderr
    assert recorder.commands("generate") == []
