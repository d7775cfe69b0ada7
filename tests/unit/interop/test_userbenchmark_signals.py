"""Changes between two metrics files."""

import json
import random

import attrs
import pytest
from results_support import latencies

from comparative_benchmark.cli import command as cli
from comparative_benchmark.interop.userbenchmarks import bisecting, changes, evidence
from comparative_benchmark.interop.userbenchmarks.runner import MetricsError
from comparative_benchmark.reporting.writers import as_yaml

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
    found = changes.compare(None, old, new)
    assert {item.metric: item.delta for item in found.changes} == {
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
    assert [s.metric for s in changes.compare(None, old, new).regressions] == [f"{KEY}throughputs"]


def test_metrics_of_two_userbenchmarks_are_not_compared():
    with pytest.raises(MetricsError, match="'mine' and 'other'"):
        changes.compare(None, document(), document("other"))


def test_the_regression_file_is_that_of_torchbench():
    yaml = pytest.importorskip("yaml")
    found = changes.compare(None, document(a=1.0, b=1.0), document(a=2.0, c=1.0))
    loaded = yaml.safe_load(as_yaml(found.as_document()))
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
    found = changes.compare(None, document(**{"a <b> @me": 1.0}), document(**{"a <b> @me": 2.0}))
    text = changes.issue_text(found, ("@owner",))
    assert "Base commit: 0000000000" in text
    assert "- a &lt;b&gt; @\u200bme: +100.0%" in text
    assert text.endswith("cc @owner\n")


def test_nothing_in_an_issue_that_files_contain_is_markup():
    old, new = document("of @me", gone="@me <b>"), document("of @me", added="@me <b>")
    new["environ"] = {"pytorch_git_version": "@me <b>"}
    text = changes.issue_text(changes.compare(None, old, new))
    assert text.count("@\u200bme &lt;b&gt;") == 3
    assert "@me" not in text
    assert "<b>" not in text


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


def test_rates_change_only_with_the_latency_behind_them(two_nights):
    control, treatment = two_nights(1.0), two_nights(1.08)
    for night, rate in ((control, 100.0), (treatment, 92.0)):
        keys = [key for key in night["metrics"] if "jax_xla" in key and "=latencies" in key]
        assert keys
        night["metrics"] |= {f"{key.removesuffix('latencies')}throughput": rate for key in keys}
    assert not evidence.run(control, treatment).details


def test_damaged_evidence_is_ignored(two_nights):
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
    assert "metrics compared: 1; 1 worse, 0 better, 1 missing, 0 new" in said.out
    assert "userbenchmark 'mine' not found" in said.err
    assert 'details:\n  "a":\n    control: 1.0\n' in yaml_file.read_text()
    assert "- a: +100.0%" in issue.read_text()
    assert cli.main([*arguments, "--yaml", str(old)]) == 1
    assert f"{old} contains results; choose another file" in capsys.readouterr().err
    # In the other direction, nothing is worse, and a removed metric is missing.
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
    signal = changes.Signal(metric="a", control=1.0, treatment=2.0, delta=1.0)
    assert attrs.evolve(signal, treatment=0.5, delta=-0.5).change == "-50.0%"


def _runs(values, name="mine"):
    """Documents of several runs, by the values of each metric."""
    count = max(map(len, values.values()))
    return [
        document(name, **{key: each[turn] for key, each in values.items() if turn < len(each)})
        for turn in range(count)
    ]


AROUND_1 = (1.0, 1.01, 0.99, 1.005, 0.995, 1.002)


def _scaled(factor):
    return [value * factor for value in AROUND_1]


def test_several_runs_show_what_changed_beyond_their_spread():
    old = {
        "slower": _scaled(1),
        "faster": _scaled(1),
        "throughput": _scaled(1),
        "noisy": [1.0, 2.0, 0.5, 1.5, 0.7, 1.2],
        "small": _scaled(1),
        "equal": [3.0] * 6,
        "count": [0.0] * 6,
        "zero": [0.0] * 6,
        "broken": _scaled(1),
        "mended": ["failed", *_scaled(1)[1:]],
        "status": ["ok"] * 6,
        "gone": [1.0] * 6,
    }
    new = {
        **old,
        "slower": _scaled(1.2),
        "faster": _scaled(0.8),
        "throughput": _scaled(0.8),
        "noisy": [1.3, 2.5, 0.6, 1.9, 0.8, 1.6],
        "small": _scaled(1.015),
        "count": [2.0, 3.0, 2.0, 2.0, 4.0, 2.0],
        "broken": [*_scaled(1)[1:], "failed"],
        "mended": _scaled(1),
        "added": [1.0] * 6,
    }
    del new["gone"]
    found, rows = changes.compare_runs(_runs(old), _runs(new))
    assert {item.metric: item.result for item in rows} == {
        "slower": "worse",
        "faster": "better",
        "throughput": "worse",
        "noisy": "unclear",
        "small": "same",
        "equal": "same",
        "count": "worse",
        "zero": "same",
        "broken": "worse",
        "mended": "better",
        "status": "same",
        "gone": "missing",
        "added": "new",
    }
    assert {item.metric for item in found.regressions} == {
        *("slower", "throughput", "count", "broken")
    }
    deltas = {item.metric: item.delta for item in found.changes}
    assert deltas["slower"] == pytest.approx(0.2)
    assert deltas["count"] == "0 -> 2"
    assert found.control_only == {"gone": 1.0}


def test_a_metric_that_some_runs_lack_has_failed():
    old, new = _runs({"a": _scaled(1), "b": _scaled(1)}), _runs({"a": _scaled(1), "b": _scaled(1)})
    del new[2]["metrics"]["b"]
    found, rows = changes.compare_runs(old, new)
    assert {item.metric: item.result for item in rows} == {"a": "same", "b": "worse"}
    assert [item.metric for item in found.regressions] == ["b"]


def test_fewer_than_six_runs_decide_nothing():
    old, new = ({"a": _scaled(factor)[:5], "count": [factor] * 5} for factor in (0.0, 2.0))
    _, rows = changes.compare_runs(
        _runs({**old, "a": _scaled(1)[:5]}), _runs({**new, "a": _scaled(9)[:5]})
    )
    assert {item.result for item in rows} == {"unclear"}
    assert "Detecting a change requires 6 runs per side." in changes.as_markdown("#", rows, 5)
    _, [lone] = changes.compare_runs(_runs({"a": [1.0]}), _runs({"a": [9.0]}))
    assert lone.result == "unclear"


def test_equal_sides_with_many_metrics_rarely_have_a_change():
    """Holm's correction is over all metrics: a table of 40 has one by chance in 5 % of cases."""
    draw = random.Random(1)

    def side():
        return _runs({f"m{i}": [draw.lognormvariate(0, 0.1) for _ in range(6)] for i in range(40)})

    changed = sum(bool(changes.compare_runs(side(), side())[0].changes) for _ in range(100))
    assert changed <= 15


def test_folders_of_runs_are_compared_by_the_command_line(tmp_path, capsys):
    for folder, factor in (("base", 1), ("head", 1.5)):
        (tmp_path / folder).mkdir()
        for turn, run in enumerate(_runs({"a|b": _scaled(factor)})):
            (tmp_path / folder / f"metrics-2026010100000{turn}.json").write_text(json.dumps(run))
    sides = [str(tmp_path / "base"), str(tmp_path / "head")]
    table = tmp_path / "table.md"
    assert cli.main(["userbenchmark", "compare", *sides, "--markdown", str(table)]) == 2
    assert "worse     +50.0%  a|b: 1 -> 1.5" in capsys.readouterr().out
    lines = table.read_text().splitlines()
    assert lines[0] == "### Userbenchmark: mine"
    assert lines[2].startswith("| metric | base | head | change |")
    assert lines[4].startswith(r"| a\|b | 1 | 1.5 | +50.0% |")
    assert lines[4].endswith("| worse |")
    assert cli.main(["userbenchmark", "compare", sides[0], sides[0]]) == 0
    (tmp_path / "none").mkdir()
    assert cli.main(["userbenchmark", "compare", sides[0], str(tmp_path / "none")]) == 1
    assert "contains no metrics-*.json" in capsys.readouterr().err
    assert cli.main(["userbenchmark", "compare", "a", "--markdown", str(table)]) == 1
    assert "--markdown requires two directories" in capsys.readouterr().err


def test_runs_of_two_userbenchmarks_are_not_compared():
    with pytest.raises(MetricsError, match="'mine' and 'other'"):
        changes.compare_runs(_runs({"a": [1.0]}), _runs({"a": [1.0]}, "other"))


@pytest.mark.parametrize(
    ("old", "new", "answer"),
    [
        ((0, 1, 0), (1, 0, 1), "unclear"),
        ((0, 0, 0), (1, 1, 2), "bad"),
        ((1, 0, 1), (0, 0, 1), "good"),
        ((-0.02, 0.01, -0.01), (-0.021, 0.012, -0.009), "unclear"),
    ],
)
def test_counts_that_overlap_do_not_end_a_bisection(old, new, answer):
    sides = [[{"graph_breaks": value} for value in side] for side in (old, new)]
    assert bisecting._judge("graph_breaks", *sides, 0.01).answer.value == answer
