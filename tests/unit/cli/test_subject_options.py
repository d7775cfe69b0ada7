"""Options of `cbs run` change the plan of a kind of subject, or are refused in one line.

Options that select or shape a subject meet every kind, the others three kinds; all options of
`cbs micro run` meet operators.
"""

import argparse
import contextlib
import os
import shutil
import sys
from pathlib import Path

import attrs
import numpy as np
import pytest

from comparative_benchmark.api import case_selection
from comparative_benchmark.api.measuring import plan_run
from comparative_benchmark.cli.commands import micro
from comparative_benchmark.cli.commands import run as run_command
from comparative_benchmark.cli.options import studies as micro_options
from comparative_benchmark.cli.options.parsing import Parser
from comparative_benchmark.cli.options.run import add_run_arguments, request_from
from comparative_benchmark.engine import settings as run_settings
from comparative_benchmark.errors import UsageError
from comparative_benchmark.request import RunRequest
from comparative_benchmark.terminal import subjects
from comparative_benchmark.terminal.subjects import Subject
from openxla.benchmark.comparative_suite.catalog import NoMatchError
from openxla.benchmark.models import architectures, checkpoints
from openxla.benchmark.user_models import ModelOptions, definitions, find_cases

TORCHBENCH = Path(__file__).parents[2] / "data" / "torchbench"
BERT = "models/BERT_TINY_FP32_PT_32XI32_BATCH4/inputs/INPUT_DATA_MODEL_DEFAULT"
NET = """
import torch
class Net(torch.nn.Module):
    pass
def example_inputs():
    return torch.zeros(1)
def loss(model, x):
    return model(x).sum()
"""
PROGRAM = """
func.func @main(%x: tensor<2x4xf32>) -> tensor<2x4xf32> { return %x : tensor<2x4xf32> }
"""
# Options that act after a run was planned, or not on the run at all.
LATER = {
    "resume": "finished trials are skipped when the run starts",
    "output": "where results go",
    "expected_failures": "applied to finished trials",
    "verbose": "printing alone",
    "dry_run": "nothing is run",
    "json": "printing alone",
    "busy": "does not wait before the run",
    "save_as": "written when the run has ended",
    "install": "installs packages before the run",
}
GIVEN = {
    "name": ["-name", "models/BERT_TINY_BF16_PT.+"],
    "test": ["-t", "train"],
    "tag": ["--tag", "no-such-tag"],
    "framework": ["--framework", "jax"],
    "device": ["-device", "host-gpu"],
    "inputs": ["--inputs", "arrays"],
    "input": ["--input", "f32[2,4]"],
    "dtype": ["--dtype", "bf16"],
    "batch": ["--batch", "2"],
    "seq_len": ["--seq-len", "16"],
    "task": ["--task", "fill-mask"],
    "base": ["--base", "bert"],
    "text": ["--text", "words.txt"],
    "image": ["--image", "picture.png"],
    "allow_code": ["--allow-code"],
    "save_as": ["--save-as", "saved"],
    "torchbench": ["--torchbench", str(TORCHBENCH / "meter")],
    "batch_size": ["--batch-size", "3"],
    "auto_batch": ["--auto-batch"],
    "install": ["--install"],
    "backend": ["--backend", "pt_inductor:inductor"],
    "warmup_iterations": ["-w", "7"],
    "iterations": ["-iter", "7"],
    "run_in_process": ["--run-in-process"],
    "share_workers": ["--share-workers"],
    "inherit_environment": ["--inherit-environment"],
    "outputs": ["--outputs", "allocated"],
    "exported_programs": ["--exported-programs"],
    "threads": ["--threads", "1"],
    "profile": ["--profile"],
    "quick": ["--quick"],
    "baseline": ["--baseline", "pt_inductor:inductor"],
    "precision": ["--precision", "0.02"],
    "effect": ["--effect", "0.07"],
    "processes": ["--processes", "5"],
    "compile_only": ["--compile-only"],
    "cpus": ["--cpus", str(min(os.sched_getaffinity(0)))],
    "env": ["--env", f"here={Path(sys.prefix)}"],
    "seed": ["--seed", "5"],
    "root_dir": ["--root-dir", "root"],
    "generate_artifacts": ["--generate-artifacts"],
    "no_download": ["--no-download"],
    "timeout": ["--timeout", "77"],
    "deadline": ["--deadline", "compile=77"],
    "memory_limit": ["--memory-limit", "7G"],
    "trial_budget": ["--trial-budget", "77"],
    "budget": ["--budget", "777"],
}
# Values for one subject alone.
FOR = {(Subject.DIRECTORY, "input"): ["--input", "input_ids=i32[2,4]<9"]}
# Options that select the subject.
OWN = {
    (Subject.SUITE_FOLDER, "suite"),
    (Subject.MODULE, "model"),
    (Subject.DIRECTORY, "model"),
    (Subject.PROGRAM, "model"),
}
# Options that need another one.
WITH = {
    (Subject.MODULE, "batch"): ["--input", "f32[batch,4]"],
    (Subject.MODULE, "seq_len"): ["--input", "f32[2,seq]", "--seq-len", "8"],
}
# Options whose value above does not fit every subject that takes the option.
VALUES = {"tag", "framework", "inputs", "image", "text", "dtype", "name", "backend", "allow_code"}
VALUES |= {"test", "suite", "baseline", "base"}
# Refused together with another option that selects, wherever that comes from.
PAIRS = {"torchbench", "model", "suite", "run_in_process"}


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """Returns the words that select each subject, in a folder with all that they name."""
    folder = tmp_path_factory.mktemp("subjects")
    with contextlib.chdir(folder):
        yield selecting_words(folder)


def selecting_words(folder):
    Path("net.py").write_text(NET)
    Path("net.mlir").write_text(PROGRAM)
    Path("words.txt").write_text("some words")
    Path("arrays").mkdir()
    np.save("arrays/input_0.npy", np.ones((2, 4), np.float32))
    shutil.copytree(checkpoints.seeded(architectures.get("bert"), "bert-tiny"), "bert")
    wanted = ModelOptions(folder=folder)
    saved = definitions("net.py", wanted, find_cases("net.py", wanted).cases, folder / "suite")
    saved.write()
    return {
        Subject.CATALOGUE: ["-name", BERT],
        Subject.SUITE_FOLDER: ["--suite-dir", "suite"],
        Subject.MODULE: ["net.py"],
        Subject.DIRECTORY: ["bert"],
        Subject.PROGRAM: ["net.mlir"],
        Subject.TORCHBENCH: ["--torchbench", str(TORCHBENCH / "dict_net")],
    }


@pytest.fixture(autouse=True)
def constant_memory(monkeypatch):
    """Plans must not differ because the available memory changes."""
    monkeypatch.setattr(run_settings, "default_limit_bytes", lambda: 8 << 30)


@pytest.fixture(scope="module")
def usual():
    """Returns plans without the option, by what selects the subject."""
    return {}


def run_parser():
    parser = UsageParser()
    add_run_arguments(parser)
    return parser


class UsageParser(Parser):
    def error(self, message):
        raise UsageError(message)


def plan(arguments):
    """Returns all fields of the plan of a run."""
    return planned_by(run_parser().parse_args([*arguments, "-o", "results.json"]))


def planned_by(options, selection=None):
    planned = plan_run(request_from(options), lambda _: None, selection=selection)
    settings = attrs.asdict(planned.settings, recurse=False)
    trials = [
        (t.case.name, t.workload.digest, str(t.competitor), t.device.name, t.refused)
        for t in planned.trials
    ]
    root = os.environ.get("CBS_ROOT_DIR")
    return trials, {k: repr(v) for k, v in settings.items()}, planned.baseline, root


def test_every_option_is_in_the_table_or_controls_the_measurement():
    actions = [action for action in run_parser()._actions if action.dest != "help"]
    assert {action.dest for action in actions} == {*GIVEN, *LATER, "model", "suite"}
    groups = run_parser()._action_groups
    shaping = {"your own model", "TorchBench folders"}
    named = {a.dest for group in groups if group.title in shaping for a in group._group_actions}
    assert named <= set(subjects.REFUSALS)


# Options that control the measurement meet every kind of case in the same code.
KINDS = (Subject.CATALOGUE, Subject.MODULE, Subject.TORCHBENCH)


@pytest.mark.parametrize(
    ("subject", "option"),
    [
        pytest.param(subject, option, id=f"{subject.name.lower()}-{option}")
        for subject in Subject
        for option in [*GIVEN, "suite", "model"]
        if option in subjects.REFUSALS or subject in KINDS
    ],
)
def test_an_option_is_used_or_refused(words, usual, monkeypatch, subject, option):
    monkeypatch.setenv("CBS_ROOT_DIR", os.environ["CBS_ROOT_DIR"])
    monkeypatch.setattr(case_selection, "_sizes", lambda wanted, *_: {wanted[0].path: 2})
    if option in LATER and subject not in subjects.REFUSALS.get(option, {}):
        return
    given = {"suite": ["--suite-dir", "suite"], "model": ["net.py"]} | GIVEN
    given |= {option: value for (of, option), value in FOR.items() if of is subject}
    base = list(words[subject])
    if set(given[option]) <= set(base) or (subject, option) in OWN:
        return
    words_before = [*base, *WITH.get((subject, option), [])]
    before = usual.setdefault(tuple(words_before), None) or plan(words_before)
    usual[tuple(words_before)] = before
    is_refused = subject in subjects.REFUSALS.get(option, {})
    refusal, after = "", None
    try:
        after = plan([*words_before, *given[option]])
    except NoMatchError as error:
        refusal = str(error).partition("\n")[0]
    except UsageError as error:
        refusal = str(error)
    if not refusal:
        assert not is_refused, "the table lists it as refused"
        assert after != before, f"{option} changes nothing of a run of {subject.value}"
    assert "\n" not in refusal
    assert not refusal or is_refused or option in VALUES | PAIRS, refusal


def test_a_model_on_the_hub_is_a_directory():
    request = RunRequest(model="hub:owner/name@main", task="fill-mask")
    assert subjects.check(request) is Subject.DIRECTORY
    with pytest.raises(UsageError, match="a Hugging Face directory defines no loss"):
        subjects.check(RunRequest(model="hub:owner/name", test="train"))


def test_a_file_without_a_loss_is_not_trained():
    file = Path(__file__).parents[2] / "data" / "cases" / "i1_train_is_ignored.py"
    with pytest.raises(UsageError, match=r"-t train: .* defines no loss; add a function loss"):
        plan([str(file), "-t", "train"])


# Options of `cbs micro run` that select operators. Its other options control the measurement.
MICRO = {
    "op": ["--op", "softmax"],
    "config": ["--config", "guide.yml"],
    "from_model": ["--from-model", BERT],
    "backward": ["--backward"],
    "shapes": ["--shapes", "8x8x8"],
    "min_power": ["--min-power", "4"],
    "max_power": ["--max-power", "4"],
    "dtype": ["--dtype", "bf16"],
    "own_workers": ["--own-workers"],
    "plot": ["--plot", "picture.svg"],
}
MEASURING = [o for o in GIVEN if o not in subjects.REFUSALS and o not in LATER]
MICRO_LATER = {
    "plot": "drawn when the run has ended",
    "share_workers": "the default of a sweep",
    "from_model": "runs the model",
}
GUIDE = """
model_params:
  - {name: small, model_type: linear, device: cpu, high_precision_dtype: torch.float32,
     use_torch_compile: false, matrix_shapes: [{name: custom, shapes: [[8, 8, 8]]}]}
"""


def parse_micro(*arguments):
    parser = argparse.ArgumentParser(prog="cbs micro")
    micro_options.add_micro_arguments(parser)
    return parser.parse_args(["run", *arguments])


@pytest.fixture
def plan_of_micro(words, monkeypatch):
    """Returns a function that returns the plan of a sweep with these options."""
    Path("guide.yml").write_text(GUIDE)
    monkeypatch.setenv("CBS_ROOT_DIR", os.environ["CBS_ROOT_DIR"])
    plans = []
    monkeypatch.setattr(
        run_command,
        "run",
        lambda options, selection, _: plans.append(planned_by(options, selection)) or 0,
    )

    def plan_of(*arguments):
        assert micro.run(parse_micro(*arguments, "-o", "results.json")) == 0
        return plans[-1]

    return plan_of


def test_every_option_of_micro_is_in_a_table():
    options = vars(parse_micro("--op", "matmul"))
    assert set(options) == {"action", *MICRO, *MEASURING, *LATER} & {"action", *options}
    assert {*MICRO, *MEASURING} <= set(options)


@pytest.mark.parametrize("option", [o for o in (*MICRO, *MEASURING) if o not in MICRO_LATER])
def test_an_option_of_micro_changes_the_plan(plan_of_micro, option):
    selected = [] if option in ("op", "config") else ["--op", "matmul"]
    given = (MICRO | GIVEN)[option]
    before = plan_of_micro("--op", "matmul")
    assert plan_of_micro(*selected, *given) != before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        *(
            (("--config", "guide.yml", *words), f"--config and {words[0]} cannot be combined")
            for words in (
                *(MICRO[option] for option in ("shapes", "min_power", "dtype")),
                GIVEN["backend"],
            )
        ),
        *(
            ((*MICRO["from_model"], *MICRO[option]), f"--from-model and {MICRO[option][0]} cannot")
            for option in ("shapes", "min_power", "max_power", "dtype")
        ),
        (("--op", "matmul", "--own-workers", "--share-workers"), "use one of them"),
    ],
)
def test_options_of_micro_that_exclude_each_other_are_refused(plan_of_micro, arguments, message):
    with pytest.raises(UsageError, match=message):
        plan_of_micro(*arguments)
