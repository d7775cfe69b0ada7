"""A machine that changes between two files gives no verdict on a program."""

import datetime
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from results_support import completed
from test_compare import document, metrics, record

from comparative_benchmark.analysis.stats.analysis import Verdict
from comparative_benchmark.cli import command as cli
from comparative_benchmark.reporting.report.trends import usual_change
from comparative_benchmark.results.comparing import compare
from comparative_benchmark.results.comparing.noise_floor import common_move, is_of_move, run_to_run
from comparative_benchmark.results.results_file import encode

EAGER, INDUCTOR = "pt_inductor:eager", "pt_inductor:inductor"
XLA, IREE = "jax_xla:xla", "iree:llvm-cpu"


def compared(old, new, **options):
    """Compares two files; each is the scale of the latency by workload and competitor."""
    files = []
    for seed, scales in enumerate((old, new)):
        program = {"program": {"artifact_sha256": f"{seed:064}"}}
        records = [
            record(workload, competitor, level=metrics(number + 9 * seed, scale=scale) | program)
            for number, ((workload, competitor), scale) in enumerate(scales.items())
        ]
        files.append(completed(document(*records)))
    return compare.compare_documents(*files, **options)


def scaled(*competitors, workloads=("w1", "w2"), by=None):
    by = by or {}
    return {(w, c): by.get((w, c), by.get(c, 1.0)) for w in workloads for c in competitors}


def verdicts(found):
    return [item.verdict for item in found]


def test_what_moves_every_backend_is_the_machine():
    found = compared(scaled(EAGER, XLA), scaled(EAGER, XLA, by={EAGER: 1.2, XLA: 1.1}))
    assert set(verdicts(found)) == {Verdict.UNCLEAR}
    assert {item.withheld for item in found} == {Verdict.SLOWER}
    assert found[0].reason == (
        "every backend is slower (median 15%), so the machine may have changed"
    )
    plain = compared(
        scaled(EAGER, XLA), scaled(EAGER, XLA, by={EAGER: 1.2, XLA: 1.1}), count_unchanged=True
    )
    assert set(verdicts(plain)) == {Verdict.SLOWER}


def test_what_moves_further_than_twice_as_far_has_its_own_reason():
    by = {EAGER: 1.2, XLA: 1.1, ("w2", XLA): 1.9}
    found = compared(scaled(EAGER, XLA), scaled(EAGER, XLA, by=by))
    assert [item.verdict for item in found if item.withheld is None] == [Verdict.SLOWER]


@pytest.mark.parametrize(
    ("competitors", "by"),
    [
        # One backend alone may have become slower.
        ((EAGER, INDUCTOR), {EAGER: 1.2, INDUCTOR: 1.2}),
        ((EAGER, XLA), {EAGER: 1.2, XLA: 1.0}),
        ((EAGER, XLA), {EAGER: 1.2, XLA: 0.8}),
        ((EAGER, XLA, IREE), {EAGER: 1.2, XLA: 1.2, IREE: 1.005}),
    ],
)
def test_what_does_not_move_everything_has_a_verdict(competitors, by):
    found = compared(scaled(*competitors), scaled(*competitors, by=by))
    assert Verdict.SLOWER in verdicts(found)
    assert not any("every backend" in item.reason for item in found)


def test_two_comparisons_show_no_common_move():
    assert common_move([("a", 0.2), ("b", 0.2)]) == 0.0
    assert common_move([("a", -0.2), ("b", -0.1), ("b", -0.1)]) == pytest.approx(-0.1)
    assert is_of_move(-0.3, -0.2)
    assert not is_of_move(-0.5, -0.2)
    assert not is_of_move(0.1, -0.2)
    assert not is_of_move(0.1, 0.0)


@pytest.mark.parametrize("side", ["baseline", "candidate"])
@pytest.mark.parametrize(("scale", "verdict"), [(1.2, Verdict.UNCLEAR), (1.4, Verdict.SLOWER)])
def test_conditions_that_differ_are_no_small_difference_of_a_program(side, scale, verdict):
    contention = [{"contended": True}, {"contended": False}]
    if side == "candidate":
        contention.reverse()
    old, new = (
        record("w1", XLA, level={**metrics(seed, scale=each), "contention": found})
        for seed, (each, found) in enumerate(zip((1.0, scale), contention, strict=True))
    )
    [found] = compare.compare_documents(completed(document(old)), completed(document(new)))
    assert found.verdict is verdict
    if verdict is Verdict.UNCLEAR:
        assert found.reason.startswith(f"other processes disturbed only the {side}")


def test_a_history_says_what_differences_are_usual():
    old, new = scaled(XLA), scaled(XLA, by={("w1", XLA): 1.1, ("w2", XLA): 1.3})
    usual = {"w1": 0.15, "w2": 0.15}
    found = compared(old, new, usual_change=lambda case: usual[case.label.removeprefix("label-")])
    assert {item.label: item.verdict for item in found} == {
        "label-w1": Verdict.UNCLEAR,
        "label-w2": Verdict.SLOWER,
    }
    assert (
        found[0].reason == "according to the history, this case varies by up to 15.0% between runs"
    )


def test_the_run_to_judge_is_not_part_of_what_is_usual():
    at = [datetime.datetime(2026, 1, day, tzinfo=datetime.UTC) for day in range(1, 6)]
    points = [
        SimpleNamespace(time=time, value=1.2 if time == at[-1] else 1.0, versions={"jax": "1"})
        for time in at
    ]
    assert usual_change(lambda _: points)(SimpleNamespace(started=at[-1])) == 0.0
    assert usual_change(lambda _: points)(SimpleNamespace(started=None)) == pytest.approx(0.2)


def test_successive_runs_with_the_same_packages_tell_what_is_usual():
    same, newer = {"torch": "1"}, {"torch": "2"}
    runs = [(1.0, same), (1.1, same), (1.0, same), (3.0, newer), (3.3, newer)]
    assert run_to_run(runs) == pytest.approx(0.1)
    assert run_to_run(runs[:3]) == 0.0
    many = [(math.exp(log), same) for log in 0.01 * np.random.default_rng(0).standard_normal(200)]
    assert run_to_run(many) == pytest.approx(math.sqrt(2) * 1.96 * 0.01, rel=0.2)


def written(folder, name, scales, seed):
    program = {"program": {"artifact_sha256": f"{seed:064}"}}
    made = [
        record(workload, competitor, level=metrics(seed, scale=scale) | program)
        for (workload, competitor), scale in scales.items()
    ]
    path = folder / name
    path.write_bytes(encode(completed(document(*made))))
    return str(path)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Two results files, the second one slower by 10 %; and no history of the user's."""
    monkeypatch.delenv("CBS_HISTORY", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    old = written(tmp_path, "old.json", {("w1", XLA): 1.0}, 0)
    return old, written(tmp_path, "new.json", {("w1", XLA): 1.1}, 1)


def told(capsys, *arguments):
    code = cli.main(["compare", *arguments, "--json"])
    printed = capsys.readouterr()
    return code, json.loads(printed.out)["comparisons"][0], printed.err


def test_compare_takes_a_history(files, tmp_path, capsys):
    assert told(capsys, *files)[:1] == (2,)
    points = [[f"2026-11-{day:02}T00:00:00Z", 1.0 + 0.15 * (day % 2)] for day in range(1, 12)]
    trends = tmp_path / "trends.json"
    trends.write_text(
        json.dumps({"trends": [{"case": "models/W1", "competitor": XLA, "points": points}]})
    )
    code, found, _ = told(capsys, *files, "--history", str(trends))
    assert (code, found["verdict"], found["withheld"]) == (0, "unclear", "slower")
    assert (
        found["reason"] == "according to the history, this case varies by up to 15.0% between runs"
    )
    assert told(capsys, *files, "--history", str(trends), "--count-unchanged")[0] == 2


def test_a_history_that_nobody_named_costs_nothing_where_it_is_broken(
    files, tmp_path, capsys, monkeypatch
):
    broken = tmp_path / "history.sqlite"
    broken.write_bytes(b"no database")
    monkeypatch.setenv("CBS_HISTORY", str(broken))
    code, _, said = told(capsys, *files)
    assert code == 2
    assert said.startswith("comparing without the history: --history default:")
    assert cli.main(["compare", *files, "--history", str(broken)]) == 1
    assert "history.sqlite" in capsys.readouterr().err


def test_eager_execution_with_the_same_packages_is_the_same_program():
    same = {"versions": {"torch": "2.13.0"}}
    [found] = compare.compare_documents(
        *(
            completed(document({**record("w1", EAGER, level=metrics(s, scale=scale)), **versions}))
            for s, (scale, versions) in enumerate(((1.0, same), (1.3, same)))
        )
    )
    assert found.withheld is Verdict.SLOWER
    assert found.reason.startswith("nothing is compiled and the package versions are identical")
