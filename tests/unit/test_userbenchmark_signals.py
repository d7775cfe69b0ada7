"""What counts as a change between two metrics files."""

import json

import attrs
import pytest
from formats_support import write_results

from comparative_benchmark.cli import command as cli
from comparative_benchmark.formats.torchbench import document_of
from comparative_benchmark.history import results_files
from comparative_benchmark.userbenchmarks import evidence, signals
from comparative_benchmark.userbenchmarks.metrics import MetricsError

KEY = "model=a, test=eval, device=cpu, bs=1, extra_args=[], metric="


def document(name="mine", **metrics):
    return {"name": name, "environ": {"pytorch_git_version": "0" * 40}, "metrics": metrics}


def test_what_changed_beyond_the_threshold_in_both_directions():
    old = document(
        same=1.0, slower=1.0, faster=2.0, gone=1.0, broken=1.0, mended="failed", zero=0.0
    )
    new = document(
        same=1.06, slower=1.08, faster=1.0, new=1.0, broken="failed", mended=1.0, zero=0.0
    )
    found = signals.compare(None, old, new)
    assert {item.metric: item.delta for item in found.found} == {
        "slower": pytest.approx(0.08),
        "faster": -0.5,
        "broken": "1.0 -> failed",
        "mended": "failed -> 1.0",
    }
    assert {item.metric for item in found.regressions} == {"slower", "broken"}
    assert found.control_only == {"gone": 1.0}
    assert found.treatment_only == {"new": 1.0}
    assert found.compared == 6


def test_more_throughput_is_better():
    old = document(**{f"{KEY}throughputs": 100.0, f"{KEY}latencies": 1.0, "tokens_per_s": 1.0})
    new = document(**{f"{KEY}throughputs": 50.0, f"{KEY}latencies": 0.5, "tokens_per_s": 2.0})
    assert [s.metric for s in signals.compare(None, old, new).regressions] == [f"{KEY}throughputs"]


def test_metrics_of_two_userbenchmarks_are_not_compared():
    with pytest.raises(MetricsError, match="'mine' and 'other'"):
        signals.compare(None, document(), document("other"))


def test_the_regression_file_is_that_of_torchbench():
    yaml = pytest.importorskip("yaml")
    found = signals.compare(None, document(a=1.0, b=1.0), document(a=2.0, c=1.0))
    loaded = yaml.safe_load(signals.as_yaml(found))
    assert list(loaded) == [
        *("name", "control_env", "treatment_env", "details", "control_only_metrics"),
        *("treatment_only_metrics", "bisection", "bisection_mode", "bisection_config_file_path"),
    ]
    assert loaded["details"] == {"a": {"control": 1.0, "treatment": 2.0, "delta": 1.0}}
    assert loaded["control_env"]["git_commit_hash"] == "0" * 40
    assert (loaded["control_only_metrics"], loaded["treatment_only_metrics"]) == (
        {"b": 1.0},
        {"c": 1.0},
    )


def test_the_issue_tells_what_and_calls_only_owners():
    found = signals.compare(None, document(**{"a <b> @me": 1.0}), document(**{"a <b> @me": 2.0}))
    text = signals.issue_text(found, ("@owner",))
    assert "Base commit: 0000000000" in text
    assert "- a &lt;b&gt; @\u200bme: +100.0%" in text
    assert text.endswith("cc @owner\n")


@pytest.fixture
def two_nights(tmp_path, make_trial, finished):
    def night(factor):
        path = tmp_path / "results.json"
        path.unlink(missing_ok=True)
        write_results(path, make_trial, finished, factor=factor)
        return document_of(results_files.read(path).results, "comparative_suite")

    return night


def latencies(found):
    return [item for item in found.details if item.endswith("metric=latencies")]


@pytest.mark.slow
def test_a_detector_with_samples_sees_what_they_show(two_nights):
    control = two_nights(1.0)
    # Three processes of a noisy case: 8 % is within their spread, a factor of three is not.
    assert latencies(evidence.run(control, two_nights(1.08))) == []
    [key] = latencies(evidence.run(control, two_nights(3.0)))
    assert "--backend=jax_xla" in key
    assert evidence.run(control, two_nights(3.0)).details[key].delta == pytest.approx(2.0)


def test_a_wrong_output_is_a_change_whatever_its_speed(two_nights, tmp_path):
    control = two_nights(1.0)
    [key] = [k for k in control["metrics"] if "jax_xla" in k and k.endswith("=latencies")]
    treatment = two_nights(1.0)
    treatment["metrics"][key] = "wrong_output"
    found = evidence.run(control, treatment)
    assert found.details[key].delta.endswith("-> wrong_output")


def test_points_are_compared_where_there_are_no_samples():
    old = document(**{f"{KEY}cpu_peak_mem": 1.0, f"{KEY}relative_rmse": 1e-7})
    new = document(**{f"{KEY}cpu_peak_mem": 1.2, f"{KEY}relative_rmse": 1.9e-7})
    assert list(evidence.run(old, new).details) == [f"{KEY}cpu_peak_mem"]
    new["metrics"][f"{KEY}relative_rmse"] = 1e-5
    assert len(evidence.run(old, new).details) == 2


def test_damaged_evidence_is_none(two_nights):
    control, treatment = two_nights(1.0), two_nights(3.0)
    treatment["common_benchmark_suite"] = {"version": 1, "results": [{"case": 7}]}
    # Point with point: 200 % is beyond any threshold.
    assert len(latencies(evidence.run(control, treatment))) == 1


def test_compare_by_the_command_line(tmp_path, capsys):
    pytest.importorskip("yaml")
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text(json.dumps(document(a=1.0, gone=1.0)))
    new.write_text(json.dumps(document(a=2.0)))
    yaml_file, issue = tmp_path / "out" / "r.yaml", tmp_path / "issue.md"
    arguments = ["userbenchmark", "compare", str(old), str(new)]
    assert cli.main([*arguments, "--yaml", str(yaml_file), "--issue", str(issue)]) == 2
    said = capsys.readouterr()
    assert "worse    +100.0%  a: 1 -> 2" in said.out
    assert "1 metrics compared, 1 worse, 0 better, 1 missing, 0 new" in said.out
    assert "no userbenchmark 'mine' here" in said.err
    assert "details:\n  a:\n" in yaml_file.read_text()
    assert "- a: +100.0%" in issue.read_text()
    # The other way round nothing is worse; and one that has gone is missing.
    assert cli.main(["userbenchmark", "compare", str(new), str(old)]) == 0
    assert cli.main(["userbenchmark", "compare", str(old), str(old)]) == 0
    new.write_text(json.dumps(document(a=1.0)))
    assert cli.main(arguments) == 3


def test_compare_refuses_what_is_damaged(tmp_path, capsys):
    old = tmp_path / "old.json"
    old.write_text('{"name": "mine",\n"environ": }')
    assert cli.main(["userbenchmark", "compare", str(old), str(old)]) == 1
    assert f"{old}:2: not JSON" in capsys.readouterr().err


def test_signals_are_values():
    signal = signals.Signal(metric="a", control=1.0, treatment=2.0, delta=1.0)
    assert attrs.evolve(signal, treatment=0.5, delta=-0.5).change == "-50.0%"
