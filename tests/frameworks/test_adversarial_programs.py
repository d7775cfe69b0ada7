"""Programs with one fault each, in real workers: none may be accepted as right.

`test_verification_adversarial.py` tests which sizes of errors are found; this file has programs.
"""

import json
import re
import subprocess
import sys

import pytest
from cbs_test_plugin.adversarial_suite import MODELS
from cbs_test_plugin.adversaries import KEEPING, OF_TORCH
from cbs_test_plugin.adversaries_generating import FROM_A_TABLE
from cbs_test_plugin.adversaries_training import KEEPING_GRADIENTS
from tests_support import run_cbs, selected

# Each wrong program ends its worker: all of them take minutes.
pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(3000)]


def _upper(fault):
    return fault.upper().replace("-", "_")


# Right on the timed input: the check of a second input that finds them.
SECOND = {_upper(fault) for fault in KEEPING}
# Wrong from the second run on; the fault decides which verification finds it first.
LATER = {_upper(fault) for fault in (*OF_TORCH, *KEEPING_GRADIENTS, FROM_A_TABLE)}
REFUSED = {_upper("computes-when-read")}
TIMED = sorted(model.name for model in MODELS if "when-timed" in model.tags)
COMPILED = {model.name: model for model in MODELS if "compiled" in model.tags}
NAMES = sorted(model.name for model in MODELS if model.name not in (*TIMED, *COMPILED))
# The default tier has some of each class and each network's right program; `--all` has all.
SAMPLE = {
    # Right programs make the truth.
    *("BERT_NONE_FP32_PT", "GPT2_NONE_FP32_PT", "LINEAR_NONE_FP32_PT"),
    *("BERT_LAST_ELEMENT_FP32_PT", "BERT_COMPUTES_IN_BF16_FP32_JAX"),
    *("BERT_BY_ADDRESS_FP32_PT", "BERT_COMPUTES_WHEN_READ_FP32_PT"),
    *("GPT2_STALE_CACHE_FP32_PT", "GPT2_FROM_A_TABLE_FP32_JAX", "LINEAR_GRADIENT_SCALED_FP32_PT"),
}
assert set(NAMES) >= SAMPLE
PARAMETERS = [
    pytest.param(name, marks=() if name in SAMPLE else pytest.mark.nightly) for name in NAMES
]


@pytest.fixture(scope="module")
def cells(request, tmp_path_factory, session_environment):
    """Results of the selected tests in the backend of their framework, by the model's name."""
    names = selected(request, test_an_adversary_is_wrong_and_what_is_right_is_right, "name")
    # Without right programs, wrong ones would compute the truths.
    names = sorted({*(names or SAMPLE), *(name for name in SAMPLE if "_NONE_" in name)})
    directory = tmp_path_factory.mktemp("adversaries")
    output = directory / "matrix.json"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "comparative_benchmark", "parity"),
            *("--suite", "cbs_test_plugin.adversarial_suite", "--tag", "adversary"),
            *("-name", f"models/({'|'.join(names)})/.+"),
            *("--backend", "pt_inductor:eager,jax_xla:xla", "--no-drift", "-o", output),
        ],
        env=session_environment,
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    # 2 for a wrong output, 1 for a refused model.
    assert done.returncode in (1, 2), done.stderr
    cells = json.loads(output.read_text())["cells"]
    return {
        cell["case"].split("/")[1]: cell
        for cell in cells
        if cell["case"] and cell["status"] != "unsupported"
    }


@pytest.mark.parametrize("name", PARAMETERS)
def test_an_adversary_is_wrong_and_what_is_right_is_right(cells, name):
    cell = cells[name]
    if "_NONE_" in name:
        assert cell["status"] == "ok", cell["reason"]
        return
    fault = name.partition("_")[2].removesuffix("_LARGE").rsplit("_", 2)[0]
    if fault in REFUSED:
        assert cell["status"] == "failed"
        assert "expected a plain tensor" in cell["reason"]
        return
    assert cell["status"] == "wrong_output", (cell["reason"], cell["relative_error"])
    if fault in LATER:
        assert cell["phase"].startswith("verify_")
        return
    assert cell["phase"] == ("verify_second_input" if fault in SECOND else "verify_first_run")


@pytest.fixture(scope="module")
def timed(tmp_path_factory, session_environment):
    """Programs that are found only when they are timed, by `cbs run`."""
    run = run_cbs(
        *("--suite", "cbs_test_plugin.adversarial_suite", "--tag", "when-timed"),
        *("--backend", "pt_inductor:eager", "-w", "1", "-iter", "2"),
        directory=tmp_path_factory.mktemp("timed"),
        environment=session_environment,
    )
    return {record["definition"]["model"]: record for record in run.document["benchmarks"]}


@pytest.mark.parametrize("name", TIMED)
def test_an_adversary_that_is_right_once_is_wrong_when_it_is_timed(timed, name):
    assert timed[name]["status"] == "wrong_output", timed[name]["reason"]
    assert timed[name]["phase"] == "verify_last_run"


# Right programs that a compiler leaves to eager execution, and the reason that is reported.
UNCOMPILED = {
    "gives-up-compiling": r"Inductor's program was not called in 2 of 2 timed iterations: "
    r"recompile limit \(8\) reached, because of the failed guard .*runs == 7$",
    "recompiles-in-each-call": r"all 2 timed iterations recompiled the program: the "
    r"failed guard .*runs == \d$",
    "mostly-eager": r"Inductor's programs take \d+% of the compiled model's time, but at "
    r"least 95% is required; .*: Skip inlining `torch.compiler.disable\(\)`d function$",
    "half-given-up": r"Inductor's programs received 1 of 2 calls in 2 of 2 timed iterations: "
    r"recompile limit \(8\) reached, because of the failed guard .*runs == 7$",
}
# A recompilation takes seconds, and the limit is reached after eight.
WARM_UP = {"recompiles-in-each-call": 1, "gives-up-compiling": 8, "half-given-up": 8}
NIGHTLY = ("gives-up-compiling", "recompiles-in-each-call", "half-given-up")


@pytest.fixture(scope="module")
def compiled(request, tmp_path_factory, session_environment):
    """Records of the selected compiled rows, by fault."""
    test = test_a_right_program_that_is_not_compiled_is_unsupported
    faults = selected(request, test, "fault") or ["none", *sorted(set(UNCOMPILED) - set(NIGHTLY))]
    records = {}
    for warm_up in sorted({WARM_UP.get(fault, 2) for fault in faults}):
        chosen = [fault for fault in faults if WARM_UP.get(fault, 2) == warm_up]
        names = "|".join(map(_upper, chosen))
        run = run_cbs(
            *("--suite", "cbs_test_plugin.adversarial_suite", "--tag", "compiled"),
            *("-name", f"models/LINEAR_({names})_COMPILED_.+", "-w", str(warm_up), "-iter", "2"),
            *("--backend", "pt_inductor:inductor"),
            directory=tmp_path_factory.mktemp("compiled"),
            environment=session_environment,
        )
        for record in run.document["benchmarks"]:
            model = COMPILED[record["definition"]["model"]]
            records[model.model_parameters["fault"]] = record
    return records


@pytest.mark.parametrize(
    "fault",
    [
        "none",
        "breaks-a-little",
        *(
            pytest.param(fault, marks=pytest.mark.nightly) if fault in NIGHTLY else fault
            for fault in UNCOMPILED
        ),
    ],
)
def test_a_right_program_that_is_not_compiled_is_unsupported(compiled, fault):
    record = compiled[fault]
    if fault in UNCOMPILED:
        assert record["status"] == "unsupported"
        assert re.search(UNCOMPILED[fault], record["reason"]), record["reason"]
        return
    assert record["status"] == "ok", record["reason"]
    assert record["metrics"]["framework_level"]["program"]["notes"]["compiled_share"] > 0.95


def test_zz_adversarial_count(cells, timed, compiled, capsys):
    ends = {n: cells[n]["status"] for n in NAMES if n in cells and "_NONE_" not in n}
    ends |= {name: record["status"] for name, record in timed.items()}
    wrong = [name for name, status in ends.items() if status in ("wrong_output", "failed")]
    uncompiled = {fault: compiled[fault]["status"] for fault in UNCOMPILED if fault in compiled}
    ends |= uncompiled
    caught = wrong + [name for name, status in uncompiled.items() if status == "unsupported"]
    with capsys.disabled():
        print(f"\n{len(ends)} planted, {len(caught)} caught")
    assert len(ends) >= 9
    assert list(ends) == caught
