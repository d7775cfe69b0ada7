"""Tables fit into a terminal: columns are dropped by rank, except the most important ones."""

import io
import re

import pytest
from report_support import record
from rich.text import Text
from test_first_table import cases

from comparative_benchmark.results.case import Case
from comparative_benchmark.results.comparing.compare import compare_to_baseline
from comparative_benchmark.terminal import tables
from comparative_benchmark.terminal.console import Console
from comparative_benchmark.terminal.screen import Column, Screen, fitted
from comparative_benchmark.terminal.tables import comparison_table, replacements, results_table

EAGER, XLA, INDUCTOR = "pt_inductor:eager", "jax_xla:xla", "pt_inductor:inductor"


def lines_of(table, width):
    out = io.StringIO()
    Screen(file=out, width=width).print(table)
    return [line.rstrip() for line in out.getvalue().splitlines() if line.strip(" \u2500")]


def column(heading, *cells, **how):
    return Column(heading=heading, cells=cells, **how)


def test_the_column_of_the_highest_rank_is_dropped_first():
    columns = [
        column("name", "a" * 20),
        column("x", "1" * 10, rank=2),
        column("y", "2" * 10, rank=1),
    ]
    assert fitted(columns, 80).dropped == ()
    assert fitted(columns, 36).dropped == ("x",)
    narrow = fitted(columns, 24)
    assert narrow.dropped == ("x", "y")
    assert lines_of(narrow.table, 24) == [" name", f" {'a' * 20}"]


def test_all_columns_fit_into_the_width_that_is_reported():
    columns = [column("name", "a", "b"), *(column(f"c{i}", "12345", "1", rank=i) for i in range(9))]
    needed = fitted(columns, 10, groups=["w1", "w2"], group_heading="workload").needed
    whole = fitted(columns, needed, groups=["w1", "w2"], group_heading="workload")
    assert whole.dropped == ()
    assert max(map(len, lines_of(whole.table, needed))) <= needed
    assert (
        fitted(columns, needed - 1, groups=["w1", "w2"], group_heading="workload")
        .table.columns[0]
        .header
        == "workload, name"
    )


def test_groups_move_above_their_rows_before_any_column_is_dropped():
    columns = [column("name", "a", "b", "c"), column("x", "1", "2", "3", rank=1)]
    groups = ["a long workload", "a long workload", "another"]
    table = fitted(columns, 22, groups=groups, group_heading="workload")
    assert table.dropped == ()
    shown = [line.split() for line in lines_of(table.table, 22)]
    assert shown == [
        ["workload,", "name", "x"],
        ["a", "long", "workload"],
        ["a", "1"],
        ["b", "2"],
        ["another"],
        ["c", "3"],
    ]


def test_cells_replace_what_a_dropped_column_would_have_told():
    columns = [
        column("name", "a"),
        column("latency", "-", without={"status": [Text("crashed")]}),
        column("status", "crashed", rank=1),
    ]
    assert lines_of(fitted(columns, 40).table, 40)[-1].split() == ["a", "-", "crashed"]
    assert lines_of(fitted(columns, 18).table, 18)[-1].split() == ["a", "crashed"]


def test_a_long_text_shrinks_before_it_is_dropped():
    columns = [column("name", "a"), column("why", "word " * 30, rank=1, least=20)]
    assert fitted(columns, 30).dropped == ()
    assert fitted(columns, 20).dropped == ("why",)


RACE = (
    record("w1", EAGER, scale=2.0),
    record("w1", INDUCTOR, scale=1.0),
    record("w1", XLA, scale=1.5),
)


@pytest.mark.parametrize("width", [80, 120, 160, 1000])
def test_verdict_speedup_and_latency_are_whole_at_every_width(width):
    for table in (
        results_table(cases(*RACE), baseline=EAGER, width=width).table,
        comparison_table(compare_to_baseline(cases(*RACE), EAGER), width=width).table,
    ):
        lines = lines_of(table, width)
        assert max(map(len, lines)) <= width
        row = next(line for line in lines if INDUCTOR in line)
        assert re.search(r"\d \([\d.]+-[\d.]+\)", row)
        assert "faster" in row


def test_a_long_verdict_leaves_room_for_names(monkeypatch):
    cell = ("380.4 (no interval)", Text("unclear (needs more processes)"))
    monkeypatch.setattr(tables, "ratio_cells", lambda cases, _: [cell] * len(cases))
    lines = lines_of(results_table(cases(*RACE), baseline=EAGER, width=80).table, 80)
    first = next(number for number, line in enumerate(lines) if INDUCTOR in line)
    assert [line.split()[-1] for line in lines[first : first + 3]] == [
        *("unclear", "more", "processes)")
    ]


def test_a_comparison_shows_its_reason_at_120_columns():
    found = compare_to_baseline(cases(*RACE), EAGER)
    assert "why" not in comparison_table(found, width=120).dropped


def test_verdicts_are_coloured():
    table = results_table(cases(*RACE), baseline=EAGER).table
    verdicts = next(c for c in table.columns if c.header == "verdict")
    assert {cell.plain: cell.style for cell in verdicts.cells}["faster"] == "green"


def test_the_fastest_correct_competitor_replaces_a_baseline_that_failed():
    race = cases(
        record("w1", EAGER, status="failed"),
        record("w1", INDUCTOR, scale=1.0),
        record("w1", XLA, scale=2.0),
    )
    [best] = replacements(race, EAGER).values()
    assert best.competitor == INDUCTOR
    table = results_table(race, baseline=EAGER).table
    verdicts = next(c for c in table.columns if c.header == "verdict")
    assert [str(cell) for cell in verdicts.cells] == ["-", "baseline", "slower"]
    assert replacements(cases(*RACE), EAGER) == {}


def test_the_summary_compares_with_what_replaces_the_baseline(capsys):
    race = cases(
        record("w1", EAGER, status="failed"),
        record("w1", INDUCTOR, scale=1.0),
        record("w1", XLA, scale=2.0),
    )
    Console().results(race, baseline=EAGER)
    assert "geomean over 1 of 2 cases" in capsys.readouterr().out


def test_a_recipe_replaces_no_baseline():
    race = cases(
        record("w1", EAGER, status="failed"),
        record("w1", INDUCTOR, scale=0.5, precision="int8wo"),
        record("w1", XLA, scale=1.0),
        record("w1", "iree:llvm-cpu", scale=2.0),
    )
    assert [case.competitor for case in replacements(race, EAGER).values()] == [XLA]


def verdicts_of(race):
    table = results_table(race, baseline=EAGER).table
    shown = next(c for c in table.columns if c.header == "verdict")
    return [str(cell) for cell in shown.cells]


def test_latencies_and_compile_times_have_their_own_verdicts():
    latencies = [record("w1", EAGER), record("w1", XLA, scale=2.0)]
    compiles = [record("w1", EAGER), record("w1", XLA)]
    for each, cold_ms in zip(compiles, ([8.0, 8.1, 8.2], [4.0, 4.1, 4.2]), strict=True):
        level = {"compile": {"cold_ms": cold_ms, "warm_ms": []}, "stop_reason": "compile_only"}
        each["metrics"] = dict.fromkeys(each["metrics"], level)
    assert verdicts_of([*cases(*latencies), *cases(*compiles)]) == [
        "baseline",
        "slower",
        "baseline",
        "faster",
    ]


def test_the_latest_result_of_a_case_counts():
    again = [record("w1", INDUCTOR), record("w1", XLA, scale=2.0)]
    race = [*cases(record("w1", EAGER, status="failed"), *again), *cases(*again)]
    assert verdicts_of(race) == ["-", "-", "-", "baseline", "slower"]


def test_many_unsupported_rows_become_a_line_for_each_reason(capsys):
    def unsupported(name, reason):
        return record("w1", name, status="unsupported", reason=reason)

    three = [unsupported(name, "cannot train") for name in ("one:x", "two:x", "three:x")]
    other = unsupported("four:x", "no such operator")
    Console().results(cases(*RACE, *three, other), baseline=EAGER)
    out = capsys.readouterr().out
    assert "unsupported  one:x, two:x, three:x: cannot train" in out
    assert "unsupported  four:x: no such operator" in out
    assert out.count("one:x") == 1
    Console().results(cases(*RACE, *three[:2]), baseline=EAGER)
    assert capsys.readouterr().out.count("one:x") == 2
    # A run of nothing else keeps its rows.
    Console().results(cases(*three))
    assert capsys.readouterr().out.count("one:x") == 2


def test_many_unsupported_rows_are_left_out_without_comparing_cases(capsys, monkeypatch):
    names = [f"n{number}:x" for number in range(9)]
    found = cases(record("w1", EAGER), *(record("w1", n, status="unsupported") for n in names))
    compared = []
    monkeypatch.setattr(Case, "__eq__", lambda one, other: compared.append(one) or one is other)
    Console().results(found)
    assert "unsupported  n0:x, n1:x" in capsys.readouterr().out
    assert compared == []


def test_a_model_that_cannot_be_prepared_is_one_problem(capsys):
    def failed(name, phase):
        return {**record("w1", name, status="failed", reason="its own code"), "phase": phase}

    Console().results(cases(failed("one:x", "prepare"), failed("two:x", "prepare")))
    out = capsys.readouterr().out
    assert "one:x, two:x  in prepare: its own code" in out
    assert out.count("again: ") == 1
    # Each process that failed has its own log.
    Console().results(cases(failed("one:x", "compile"), failed("two:x", "compile")))
    assert capsys.readouterr().out.count("again: ") == 2
