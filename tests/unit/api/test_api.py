"""The Python API, on files and without measuring."""

import json
import subprocess
import sys
import types

import pytest
from results_support import AGES, plain_document, write

import comparative_benchmark as cb
from comparative_benchmark.api import progress
from comparative_benchmark.cli.command import main


@pytest.fixture
def results(tmp_path):
    return cb.load(write(tmp_path / "results.json"))


def test_a_file_prints_as_cbs_show_does(results, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["show", str(results.path), "--baseline", "pt_inductor:eager"]) == 0
    shown = capsys.readouterr().out
    assert shown.split()[: len(str(results).split())] == str(results).split()


def test_results_are_a_sequence_of_cases(results):
    assert len(results) == len(list(results)) == 2
    assert results[0].competitor == "jax_xla:xla"
    assert [case.competitor for case in results[:]] == [case.competitor for case in results]
    assert results.failures == []
    assert repr(results).endswith("2 results, 0 not ok>")


def test_rows_become_tables(results):
    frame, arrow = results.to_pandas(), results.to_arrow()
    assert list(frame.columns) == arrow.column_names
    assert list(frame["competitor"]) == ["jax_xla:xla", "pt_inductor:eager"]
    assert all(tuple(row) == tuple(results.columns) for row in results.rows)
    assert frame["latency_ms"].tolist() == [case.metrics.median_ms for case in results]


def test_a_trial_that_is_not_steady_has_no_latency_in_tables(tmp_path):
    plain = plain_document()
    record = plain["benchmarks"][0]
    record |= {"status": "unsteady", "phase": "warm_up", "reason": "not steady"}
    [metrics] = record["metrics"].values()
    for name in ("latencies_ms", "median_latency_ms"):
        del metrics[name]
    metrics["error"] = "not steady"
    # This process ended before it was measured.
    metrics["processes"][1]["blocks"] = []
    (tmp_path / "r.json").write_text(json.dumps(plain))
    results = cb.load(tmp_path / "r.json")
    columns = [name for name in results.columns if name.startswith("latency")]
    assert len(columns) == 3
    assert [results.rows[0][name] for name in columns] == [None] * 3


def test_verdicts_are_those_of_the_baseline(results):
    verdicts = results.verdicts()
    assert results.baseline == "pt_inductor:eager"
    assert [item.competitor for item in verdicts] == ["jax_xla:xla"]
    row = verdicts.to_pandas().iloc[0]
    assert row["ratio_low"] <= row["ratio"] <= row["ratio_high"]
    assert row["verdict"] == verdicts[0].verdict.value
    assert [item.competitor for item in results.verdicts("jax_xla:xla")] == ["pt_inductor:eager"]
    # Next to other tests, the race may have been disturbed.
    for text in (str(verdicts), repr(verdicts)):
        assert "geomean" in text or "other processes disturbed" in text


def test_a_notebook_shows_tables_with_intervals(results):
    assert results._repr_html_().startswith("<table>")
    assert "(98 %)" in results._repr_html_()
    assert "speed-up (98 %)" in results.verdicts()._repr_html_()


def test_html_is_escaped(tmp_path):
    plain = plain_document()
    for record in plain["benchmarks"]:
        record["definition"]["workload"]["label"] = "<script>"
    (tmp_path / "r.json").write_text(json.dumps(plain))
    results = cb.load(tmp_path / "r.json")
    for text in (results._repr_html_(), results.verdicts()._repr_html_()):
        assert "<script>" not in text
        assert "&lt;script&gt;" in text


def slower(tmp_path, factor):
    plain = plain_document()
    for record in plain["benchmarks"]:
        record["run_id"] = plain["runs"][0]["run_id"]
        record["versions"] = {"torch": str(factor)}
        [metrics] = record["metrics"].values()
        metrics["program"]["artifact_sha256"] = None
        metrics.pop("race")
        for number, process in enumerate(metrics["processes"] * 3):
            process["artifact_sha256"] = None
            for block in process["blocks"]:
                block["contended"] = None
                block["latencies_ms"] = [factor + 0.001 * (number % 2)] * len(block["latencies_ms"])
        metrics["processes"] *= 3
    path = tmp_path / f"{factor}.json"
    path.write_text(json.dumps(plain))
    return cb.load(path)


def test_a_comparison_has_regressions_and_an_exit_code(tmp_path):
    old, new = slower(tmp_path, 1.0), slower(tmp_path, 1.5)
    found = cb.compare(old, new)
    assert len(found.regressions) == len(found) == 2
    assert len(found.improvements) == 0
    assert found.exit_code == 2
    assert len(cb.compare(new, old).improvements) == 2
    none = cb.compare(old, new, threshold=0.9).regressions
    assert none.rows == []
    assert list(none.to_pandas().columns) == none.to_arrow().column_names == list(none.columns)
    assert all(tuple(row) == tuple(found.columns) for row in found.rows)
    assert main(["compare", str(old.path), str(new.path)]) == found.exit_code


@pytest.mark.parametrize("age", AGES)
def test_files_of_all_ages_are_loaded_and_plotted(age, tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    results = cb.load(write(tmp_path / "r.json", age))
    axes = results.plot()
    assert len(axes.patches) == sum(case.status.value == "ok" for case in results)
    assert "ms" in axes.get_xlabel()
    plt.close("all")
    assert str(results)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema_version": 2}'])
def test_a_file_that_is_not_valid_is_refused_in_one_line(content, tmp_path):
    (tmp_path / "r.json").write_text(content)
    with pytest.raises(cb.ResultsFileError, match=r"r\.json") as caught:
        cb.load(tmp_path / "r.json")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"backends": "none"}, "'none'"),
        ({"device": "toaster"}, "unknown device 'toaster'"),
        ({"iterations": 0}, "expected at least 1, got 0"),
        ({"precision": 2}, "expected a number between 0 and 1"),
    ],
)
def test_what_cannot_be_is_an_exception_and_no_exit(arguments, words, tmp_path):
    with pytest.raises(cb.UsageError, match=words):
        cb.run("models/BERT_TINY_FP32_.+", **{"backends": "jax_xla", **arguments})


def test_a_misspelt_option_is_a_type_error():
    with pytest.raises(TypeError, match="colour"):
        cb.run("models/BERT_TINY_FP32_.+", colour="red")


def test_a_case_is_named_once():
    with pytest.raises(cb.UsageError, match="both select cases"):
        cb.run("models/BERT_TINY_FP32_.+", name="models/VIT.+")


def test_a_dry_run_reports_trials_and_runs_none(tmp_path):
    events, file = [], tmp_path / "r.json"
    results = cb.run(
        "models/BERT_TINY_FP32_PT_32XI32_BATCH1/.+",
        backends=["pt_inductor:eager", "jax_xla"],
        output=file,
        dry_run=True,
        progress=events.append,
    )
    assert len(results) == 0
    assert not file.exists()
    assert [e.text for e in events] == [
        "jax_xla:xla supports none of the selected cases",
        "would run: BERT_TINY_FP32_PT_32XI32_BATCH1 pt_inductor:eager",
    ]
    assert str(results)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="colour"):
        _ = cb.colour
    assert {"run", "load", "compare"} <= set(dir(cb))


def test_importing_it_imports_nothing_that_takes_time():
    program = (
        "import sys; before = set(sys.modules); import comparative_benchmark\n"
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=50
    )
    assert not {"numpy", "attrs", "attr", "rich", "msgspec", "torch", "jax", "tensorflow"} & set(
        done.stdout.split()
    )


def test_the_best_is_the_fastest_and_the_recommendation_names_it(results):
    assert results.best is min(results, key=lambda case: case.metrics.median_ms)
    assert f"{results.best.competitor} ({results.best.framework})" in results.recommendation


def with_records(tmp_path, change):
    """Returns the results of the usual file after a change of its records."""
    plain = plain_document()
    plain["benchmarks"] = change(plain["benchmarks"])
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(plain))
    return cb.load(path)


def of_other_workload(records):
    records[0]["definition"]["workload"]["digest"] = "0" * 64
    return records


def failed(records):
    for record in records:
        [metrics] = record["metrics"].values()
        del metrics["median_latency_ms"], metrics["latencies_ms"]
        metrics["error"] = "no memory"
        record |= {"status": "failed", "phase": "load", "reason": "no memory"}
    return records


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (of_other_workload, "No recommendation: there are results for 2 workloads; select one."),
        (failed, "No competitor has a correct output."),
        (lambda records: failed(records[:1]), "jax_xla:xla (jax): failed in load: no memory."),
    ],
)
def test_without_a_best_the_recommendation_is_the_reason(tmp_path, change, reason):
    results = with_records(tmp_path, change)
    assert results.best is None
    assert results.recommendation.splitlines()[0] == reason


def test_the_only_competitor_is_the_best(tmp_path):
    results = with_records(tmp_path, lambda records: records[:1])
    assert results.best is results[0]
    assert "the only competitor with a correct output" in results.recommendation


def test_rows_have_the_verdict_of_the_baseline(results):
    frame = results.to_pandas().set_index("competitor")
    [verdict] = results.verdicts()
    assert frame.loc["jax_xla:xla", "verdict"] == verdict.verdict.value
    assert results.rows[1]["verdict"] is None
    interval = frame[["latency_low_ms", "latency_ms", "latency_high_ms"]].loc["jax_xla:xla"]
    assert interval.is_monotonic_increasing


def test_saved_results_are_loaded_again(results, tmp_path):
    results.save(tmp_path / "new" / "copy.json")
    copy = cb.load(tmp_path / "new" / "copy.json")
    assert copy.document == results.document
    with pytest.raises(cb.UsageError, match="is a directory"):
        results.save(tmp_path)


def test_a_report_is_a_page_or_markdown(results, tmp_path):
    results.report(tmp_path / "page.html", title="Mine")
    assert "<title>Mine</title>" in (tmp_path / "page.html").read_text()
    results.report(str(tmp_path / "text.md"))
    assert "jax_xla:xla" in (tmp_path / "text.md").read_text()
    with pytest.raises(cb.UsageError, match="cannot be written"):
        results.report(tmp_path)


def test_a_notebook_shows_progress(monkeypatch, capsys):
    arguments = {"name": "BERT_TINY_FP32_PT_32XI32_BATCH1", "backends": "eager", "dry_run": True}
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    cb.run(**arguments)
    assert capsys.readouterr().out == ""
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    cb.run(**arguments)
    assert (
        "would run: BERT_TINY_FP32_PT_32XI32_BATCH1 pt_inductor:eager\n" in capsys.readouterr().out
    )
    cb.run(**arguments, progress=lambda _: None)
    assert capsys.readouterr().out == ""


def test_events_of_trials_are_numbered(capsys):
    progress._print(cb.Progress(event="finished", text="ok NET jax_xla:xla", position=2, total=3))
    assert capsys.readouterr().out == "[2/3] ok NET jax_xla:xla\n"


def test_cases_and_backends_are_those_of_the_commands(capsys):
    arguments = ["list", "-name", "models/BERT_TINY.+", "--framework", "pt", "--tag", "tiny"]
    assert main([*arguments, "--workload", "fp32", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert (
        cb.list_cases("models/BERT_TINY.+", framework="pt", tag="tiny", workload="fp32") == listed
    )
    assert listed
    assert main(["backends", "--json"]) == 0
    assert cb.list_backends() == json.loads(capsys.readouterr().out)["backends"]
    with pytest.raises(cb.UsageError, match="unknown framework abacus"):
        cb.list_cases(framework="abacus")
