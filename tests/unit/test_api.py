"""The Python API, on files and without measuring."""

import json
import subprocess
import sys

import pytest
from results_support import AGES, plain_document, write

import comparative_benchmark as cb
from comparative_benchmark.cli.command import main


@pytest.fixture
def results(tmp_path):
    return cb.load(write(tmp_path / "results.json"))


def test_a_file_prints_as_cbs_show_does(results, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["show", str(results.path), "--baseline", "pt_inductor:eager"]) == 0
    shown = capsys.readouterr().out
    assert str(results).split() == shown.rsplit("speed-up", 1)[0].split()


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


def test_verdicts_are_those_of_the_baseline(results):
    verdicts = results.verdicts()
    assert results.baseline == "pt_inductor:eager"
    assert [item.competitor for item in verdicts] == ["jax_xla:xla"]
    row = verdicts.to_pandas().iloc[0]
    assert row["ratio_low"] <= row["ratio"] <= row["ratio_high"]
    assert row["verdict"] == verdicts[0].verdict.value
    assert [item.competitor for item in results.verdicts("jax_xla:xla")] == ["pt_inductor:eager"]
    assert "geomean" in str(verdicts)
    assert "geomean" in repr(verdicts)


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
        ({"iterations": 0}, "less than 1"),
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
