"""`--save-as`: definitions that give the same cases, and do not replace files."""

import shutil

import numpy as np
import pytest
from report_support import record
from results_support import completed

from comparative_benchmark.cli import command as cli
from comparative_benchmark.engine import runner
from comparative_benchmark.results.case import cases_of
from comparative_benchmark.terminal.subjects import rerun_command
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.def_types import DefinitionError
from openxla.benchmark.models import architectures, checkpoints
from openxla.benchmark.user_models import ModelOptions, UserModelError, definitions, find_cases
from openxla.benchmark.workloads import workload_of

NET = "import torch\nclass Net(torch.nn.Module): ...\ndef example_inputs(): ...\n"
HOSTILE = 'a\'b"""\\n{x} $(touch owned) é.py'


@pytest.fixture
def project(tmp_path, monkeypatch):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "net.py").write_text(NET)
    monkeypatch.chdir(folder)
    return folder


def saved(project, text, target="suite", **wanted):
    """Saves a model's cases; returns the plan, the cases, and the cases read from the file."""
    wanted = ModelOptions(folder=project, **wanted)
    cases = find_cases(text, wanted).cases
    planned = definitions(text, wanted, cases, project / target)
    planned.write()
    return planned, cases, catalog.all_benchmarks([str(project / target)])


def identities(cases):
    return [(case.name, workload_of(case).digest) for case in cases]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("net.py", {}),
        ("net.py:Net", {"data_types": ("fp32", "bf16"), "framework": "pt"}),
        ("net:Net", {"inputs": ("i32[batch,seq]<9",), "batch_sizes": (1, 8), "seq_lens": (4,)}),
    ],
)
def test_the_same_cases_come_back_wherever_the_checkout_is(project, tmp_path, text, wanted):
    planned, cases, again = saved(project, text, **wanted)
    assert again == cases
    assert str(project) not in planned.content
    assert planned.remark is None
    moved = shutil.move(project, tmp_path / "moved")
    moved_cases = catalog.all_benchmarks([f"{moved}/suite"])
    assert identities(moved_cases) == identities(cases)


def test_a_directory_is_one_workload_again_in_all_frameworks(project):
    bert = checkpoints.seeded(architectures.get("bert"), "bert-tiny")
    shutil.copytree(bert, project / "my-bert")
    planned, cases, again = saved(project, "my-bert", seq_lens=(16,))
    assert planned.file.name == "my_bert_definitions.py"
    assert again == cases
    assert len(again) == 3


def test_a_name_cannot_become_code(project):
    (project / HOSTILE).write_text(NET)
    _, cases, again = saved(project, HOSTILE)
    assert again == cases
    assert not (project / "owned").exists()


def test_what_lies_elsewhere_is_named_by_its_path_and_told(project, tmp_path):
    outside = tmp_path / "elsewhere.py"
    outside.write_text(NET)
    planned, cases, again = saved(project, str(outside), "suites/mine")
    assert again == cases
    assert str(outside) in planned.content
    assert f"{outside} is outside mine's project" in planned.remark
    # In one checkout a file of any other folder goes along.
    (tmp_path / ".git").mkdir()
    other = definitions(
        str(outside), ModelOptions(folder=project), cases, project / "suites" / "other"
    )
    assert "(HERE / '../../..').resolve()" in other.content
    assert "'elsewhere.py:Net'" in other.content


def test_inputs_are_copied_into_the_folder(project, tmp_path):
    given = tmp_path / "given"
    given.mkdir()
    np.save(given / "input_0.npy", np.ones((2, 3), np.float32))
    _, cases, again = saved(project, "net.py", inputs_dir=given)
    shutil.rmtree(given)
    assert identities(again) == identities(cases)
    (directory,) = (project / "suite" / "inputs").iterdir()
    assert again[0].input_data.source_url == str(directory)
    np.save(directory / "input_0.npy", np.zeros((2, 3), np.float32))
    np.save(tmp_path / "input_0.npy", np.ones((2, 3), np.float32))
    with pytest.raises(UserModelError, match=r"input_0.npy already exists with other content"):
        saved(project, "net.py", inputs_dir=tmp_path)


def test_what_is_there_is_not_replaced(project):
    planned, *_ = saved(project, "net.py")
    saved(project, "net.py")  # the same again is not an error
    with pytest.raises(UserModelError, match=r"already exists with other content"):
        saved(project, "net.py", data_types=("bf16",))
    (project / "file").write_text("mine")
    with pytest.raises(UserModelError, match=r"--save-as .*file is a file"):
        saved(project, "net.py", "file")
    planned.file.write_text("mine")
    with pytest.raises(UserModelError, match="already exists with other content"):
        planned.write()
    assert planned.file.read_text() == "mine"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "is not a folder"),
        ({}, r"has no \*_definitions.py"),
        ({"a_definitions.py": "x = 1"}, "has no ALL_BENCHMARKS list"),
        ({"a_definitions.py": "raise ValueError('gone')"}, "a_definitions.py': ValueError: gone"),
    ],
)
def test_a_folder_that_is_no_suite_gives_the_reason(tmp_path, content, words):
    folder = tmp_path / "suite"
    for name, text in (content or {}).items():
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    if content == {}:
        folder.mkdir()
    with pytest.raises(DefinitionError, match=words):
        catalog.all_benchmarks([str(folder)])


def test_a_model_that_is_gone_is_reported_with_the_definitions_that_name_it(project):
    saved(project, "net.py")
    (project / "net.py").unlink()
    with pytest.raises(DefinitionError, match=r"net_definitions.py': UserModelError: no such file"):
        catalog.all_benchmarks([str(project / "suite")])


def test_the_command_line_lists_the_folder_in_place_of_the_suite(project, capsys):
    saved(project, "net.py")
    assert cli.main(["list", "--suite-dir", "suite"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("models/NET_FP32_PT/")
    assert cli.main(["run", "-name", "models/.+", "--save-as", "x"]) == 1
    assert "--save-as requires a MODEL" in capsys.readouterr().err


def test_a_failure_is_repeated_by_the_folder(project):
    suite = str(project / "suite")
    plain = record(
        competitor="pt_inductor:eager",
        benchmark_name="models/NET/inputs/USER_12345678",
        input_data="USER_12345678",
        input_source=f"{suite}/inputs/USER_12345678",
        model_parameters={"source": "net.py", "source_sha256": "0" * 64, "data_type": "fp32"},
    )
    (case,) = cases_of(completed({"benchmarks": [plain]}))
    text = rerun_command(case.result, suites=[suite])
    assert "-name models/NET/inputs/USER_12345678" in text
    assert text.endswith(f"--suite-dir {suite}")
    assert "--inputs" not in text


@pytest.mark.parametrize(
    ("status", "words"), [("ok", "saved: "), ("failed", "not saved as ")], ids=["ok", "failed"]
)
def test_a_run_saves_what_has_a_right_output(project, monkeypatch, capsys, status, words):
    plain = record(competitor="pt_inductor:eager", status=status)
    (case,) = cases_of(completed({"benchmarks": [plain]}))
    monkeypatch.setattr(runner, "execute", lambda *_, **__: [case.result])
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    options = ["--backend", "pt_inductor:eager", "-w", "1", "-iter", "1", "-o", "r.json"]
    assert cli.main(["run", "net.py", *options, "--save-as", "suite"]) == (status == "failed")
    said = " ".join("".join(capsys.readouterr()).split())
    file = project / "suite" / "net_definitions.py"
    assert words in said
    assert file.exists() == (status == "ok")
    assert ("cbs run --suite-dir suite" in said) == (status == "ok")
