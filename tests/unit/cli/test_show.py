"""`cbs show`: the run's own baseline, and files without results."""

import json

import pytest
from report_support import document, record
from results_support import decoded

from comparative_benchmark.cli.command import main
from comparative_benchmark.results.case import cases_of
from comparative_benchmark.results.comparing.compare import named_baseline, usual_baseline

EAGER, XLA, IREE = "pt_inductor:eager", "jax_xla:xla", "iree:llvm-cpu"


def cases(*competitors, command=()):
    found = document(*(record("w1", name) for name in competitors))
    for run in (found, *found["runs"]):
        run["trigger"]["command"] = list(command)
    return cases_of(decoded(found))


@pytest.mark.parametrize(
    ("command", "baseline"),
    [
        (["cbs", "run", "--baseline", IREE], IREE),
        (["cbs", "run", f"--baseline={IREE}"], IREE),
        (["cbs", "run", "--baseline", "not:there"], EAGER),
        (["cbs", "run", "--baseline", "jax"], XLA),
        (["cbs", "run", "--baseline", "inductor:eager"], EAGER),
        (["cbs", "run"], EAGER),
    ],
)
def test_the_baseline_of_the_run_comes_first(command, baseline):
    assert usual_baseline(cases(XLA, EAGER, IREE, command=command)) == baseline


def test_without_eager_the_first_competitor_is_the_baseline():
    assert usual_baseline(cases(XLA, IREE)) == XLA
    assert usual_baseline(cases(XLA)) is None
    assert usual_baseline([]) is None


def test_a_backend_that_is_not_installed_is_no_baseline():
    absence = {"modules": ["torch"], "install": "pip install torch"}
    found = document(
        {**record("w1", EAGER, status="unsupported"), "phase": "import", "absence": absence},
        *(record("w1", name) for name in (XLA, IREE)),
    )
    assert usual_baseline(cases_of(decoded(found))) == XLA


def test_a_baseline_may_be_a_synonym_and_must_exist(tmp_path, capsys):
    path = tmp_path / "r.json"
    both = (record(name, one) for name in ("w1", "w2") for one in (EAGER, XLA))
    path.write_text(json.dumps(document(*both)))
    assert main(["show", str(path), "--baseline", "jax", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["baseline"] == XLA
    assert main(["show", str(path), "--baseline", "iree"]) == 1
    choices = f"not among the competitors: {EAGER}, {XLA}"
    assert f"--baseline 'iree' is {choices}" in capsys.readouterr().err


def test_json_of_a_file_without_results_is_json(tmp_path, capsys):
    path = tmp_path / "r.json"
    path.write_text(json.dumps({**document(record("w1", EAGER)), "benchmarks": []}))
    assert main(["show", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["results"] == []


def test_a_command_line_may_end_anywhere():
    assert named_baseline(["cbs", "--baseline"]) == ""
    assert named_baseline([]) is None


def test_show_has_verdicts_without_being_asked(tmp_path, capsys):
    path = tmp_path / "r.json"
    found = document(record("w1", EAGER, scale=2.0), record("w1", XLA))
    path.write_text(json.dumps(found))
    assert main(["show", str(path)]) == 0
    out = capsys.readouterr().out
    assert "faster" in out
    assert "geomean over 1 of 1 cases" in out


def test_a_file_without_results_is_not_shown_as_nothing(tmp_path, capsys):
    path = tmp_path / "r.json"
    found = document(record("w1", EAGER))
    found["benchmarks"] = []
    path.write_text(json.dumps(found))
    assert main(["show", str(path)]) == 0
    assert capsys.readouterr().out == f"{path} contains no results yet\n"
