"""The typed description of a run, its command line and its Python signature agree."""

import inspect
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

import comparative_benchmark as cb
from comparative_benchmark.cli.options.parsing import Parser
from comparative_benchmark.cli.options.run import add_run_arguments, request_from
from comparative_benchmark.errors import UsageError
from comparative_benchmark.request import RunRequest, command_line, options

ROOT = Path(__file__).parents[3]
# One value of each field that takes more than a flag, as Python and as the command line give it.
VALUES = {
    "name": ("models/.+", ["-name", "models/.+"]),
    "test": ("train", ["-t", "train"]),
    "tag": (["a", "b"], ["--tag", "a", "--tag", "b"]),
    "framework": (["pt", "jax"], ["--framework", "pt,jax"]),
    "suite_dir": (Path("/cases"), ["--suite-dir", "/cases"]),
    "suite": ("my_models", ["--suite", "my_models"]),
    "inputs": ("arrays", ["--inputs", "arrays"]),
    "backends": (["jax_xla", "eager"], ["--backend", "jax_xla,eager"]),
    "device": ("host-gpu", ["-device", "host-gpu"]),
    "model": ("net.py", ["net.py"]),
    "input": ("f32[2,4]", ["--input", "f32[2,4]"]),
    "dtype": ("fp32,bf16", ["--dtype", "fp32,bf16"]),
    "batch": ([1, 8], ["--batch", "1,8"]),
    "seq_len": (128, ["--seq-len", "128"]),
    "task": ("fill-mask", ["--task", "fill-mask"]),
    "base": ("bert", ["--base", "bert"]),
    "text": (Path("words.txt"), ["--text", "words.txt"]),
    "image": ("picture.png", ["--image", "picture.png"]),
    "save_as": ("saved", ["--save-as", "saved"]),
    "torchbench": (["a", "b"], ["--torchbench", "a", "--torchbench", "b"]),
    "batch_size": (3, ["--batch-size", "3"]),
    "warmup_iterations": (0, ["-w", "0"]),
    "iterations": (7, ["-iter", "7"]),
    "outputs": ("bound", ["--outputs", "bound"]),
    "threads": (2, ["--threads", "2"]),
    "baseline": ("jax_xla:xla", ["--baseline", "jax_xla:xla"]),
    "precision": (0.02, ["--precision", "0.02"]),
    "effect": (0.05, ["--effect", "0.05"]),
    "processes": (5, ["--processes", "5"]),
    "cpus": ([0, 2, 3], ["--cpus", "0,2-3"]),
    "env": ({"old": Path("a"), "new": "b"}, ["--env", "old=a,new=b"]),
    "seed": (0, ["--seed", "0"]),
    "output": ("r.json", ["-o", "r.json"]),
    "root_dir": ("root", ["--root-dir", "root"]),
    "expected_failures": ("known.yaml", ["--expected-failures", "known.yaml"]),
    "timeout": (7.5, ["--timeout", "7.5"]),
    "deadline": ({"load": 1, "compile": 2}, ["--deadline", "load=1", "--deadline", "compile=2"]),
    "memory_limit": ("8G", ["--memory-limit", "8G"]),
    "trial_budget": (9, ["--trial-budget", "9"]),
    "budget": (60, ["--budget", "60"]),
}
FLAGS = [n for n, (field, _) in options().items() if field.default is False]


class UsageParser(Parser):
    def error(self, message):
        raise UsageError(message)


def parser():
    made = UsageParser(prog="cbs run")
    add_run_arguments(made)
    return made


def parsed(*words):
    """Returns the request that a command line stands for."""
    return request_from(parser().parse_args([*words]))


def test_the_function_the_class_and_the_command_have_the_same_options():
    signature = inspect.signature(cb.run).parameters
    fields = attrs.fields_dict(RunRequest)
    assert set(signature) - {"model_or_path", "progress"} == set(fields) - {"model"}
    for name in set(signature) & set(fields) - {"inputs", "output"}:
        assert signature[name].default == fields[name].default, name
        assert signature[name].kind is inspect.Parameter.KEYWORD_ONLY
    dests = {action.dest for action in parser()._actions} - {"help"}
    assert dests == {option.dest or name for name, (_, option) in options().items()}
    assert {*VALUES, *FLAGS} == set(fields)


@pytest.mark.parametrize("name", [*VALUES, *FLAGS])
def test_a_value_is_the_same_in_python_and_on_the_command_line(name):
    flag = options()[name][1].flags[:1]
    value, words = VALUES.get(name, (True, [*flag]))
    same = {} if name == "output" else {"output": "results.json"}
    typed = RunRequest(**{name: value}, **same)
    given = parsed(*words, *(() if name == "output" else ("-o", "results.json")))
    if name == "suite_dir":  # both flags select suites, in the order of the command line
        assert given.suite == typed.suite_dir
    else:
        assert given == typed
        assert getattr(typed, name) != getattr(RunRequest(), name)
        assert parsed(*command_line(typed)) == typed
    assert attrs.evolve(typed) == typed


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("iterations", 0),
        ("iterations", 2.5),
        ("iterations", True),
        ("warmup_iterations", -1),
        ("precision", 2),
        ("timeout", "soon"),
        ("cpus", "3-1"),
        ("memory_limit", "8 apples"),
        ("memory_limit", 0),
        ("framework", "abacus"),
        ("deadline", "compile"),
        ("deadline", "sleep=3"),
        ("batch", (1, 0)),
        ("outputs", "borrowed"),
        ("test", "trains"),
    ],
)
def test_an_invalid_value_has_the_message_of_the_command_line(name, value):
    with pytest.raises(UsageError) as caught:
        RunRequest(**{name: value})
    message = str(caught.value)
    assert name in message
    assert "\n" not in message
    text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    with pytest.raises(UsageError) as of_command:
        parser().parse_args([options()[name][1].flags[-1], text])
    assert message.removeprefix(f"{name}: ").partition(name)[2] in str(of_command.value)


@pytest.mark.parametrize("value", ["yes", 1])
def test_a_flag_is_true_or_false(value):
    with pytest.raises(UsageError, match="quick: expected True or False"):
        RunRequest(quick=value)


def test_none_is_the_default():
    everything = dict.fromkeys(attrs.fields_dict(RunRequest))
    assert RunRequest(**{**everything, "output": "r"}) == RunRequest(output="r")


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (["-iter", "3"], "iterations", 3),
        (["--iter", "3"], "iterations", 3),
        (["--warmup_iterations", "3"], "warmup_iterations", 3),
        (["--benchmark_name", "x"], "name", "x"),
        (["--target-dev", "host-gpu"], "device", "host-gpu"),
        (["--proc", "4"], "processes", 4),
        (["--allow-pickle"], "allow_code", True),
    ],
)
def test_flags_of_the_guides_and_abbreviations_work(words, name, value):
    assert getattr(parsed(*words), name) == value


@pytest.mark.slow
def test_a_type_checker_knows_the_options(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import comparative_benchmark as cb\n"
        "results: cb.Results = cb.run('a.+', backends=['jax_xla'], batch=8, output='r.json')\n"
        "cb.run('a.+', iteration=3)\n"
        "cb.run('a.+', iterations='many')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(script)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    unknown, wrong = (line for line in done.stdout.splitlines() if ": error:" in line)
    assert ":3: " in unknown
    assert 'Unexpected keyword argument "iteration"' in unknown
    assert ":4: " in wrong
    assert 'Argument "iterations"' in wrong
