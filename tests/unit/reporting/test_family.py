"""Verdicts among the competitors of one workload hold among all pairs of them."""

import itertools

import numpy as np
import pytest
from report_support import document, metrics, read, record
from results_support import decoded
from test_headlines import page_headline, table

from comparative_benchmark.analysis.stats.analysis import Verdict
from comparative_benchmark.reporting.report.summary import summarize
from comparative_benchmark.results.case import cases_of
from comparative_benchmark.results.comparing.compare import Family, compare_to_baseline
from comparative_benchmark.terminal.run_summary import summary_lines

EAGER = "pt_inductor:eager"
OTHERS = [f"jax_xla:{letter}" for letter in "abcdefgh"]
DECIDED = (Verdict.FASTER, Verdict.SLOWER)


def raced(logs):
    """A document of competitors, float64[competitors, processes]: logarithms of their medians."""
    made = []
    for name, row in zip([EAGER, *OTHERS], logs, strict=False):
        level = metrics(1.0, processes=len(row))
        for process, log in zip(level["processes"], row, strict=True):
            for block in process["blocks"]:
                block["latencies_ms"] = [float(np.exp(log))] * 4
        made.append(record("w1", name, metrics=level))
    return document(*made)


def equals(seed, competitors=9, processes=6):
    return 0.01 * np.random.default_rng(seed).standard_normal((competitors, processes))


def found_in(made):
    cases = list(cases_of(decoded(made)))
    return cases, Family(cases, threshold=0.01)


def test_nine_equals_have_no_verdict_where_single_pairs_would():
    lucky = 0
    for seed in range(40):
        cases, family = found_in(raced(equals(seed)))
        pairs = [family.comparison(*pair) for pair in itertools.combinations(cases, 2)]
        assert not any(item.verdict in DECIDED for item in pairs)
        lucky += sum(item.withheld in DECIDED for item in pairs)
    assert lucky


def test_two_competitors_are_judged_as_they_were():
    logs = equals(3, competitors=2)
    logs[1] += 0.1
    (old, new), family = found_in(raced(logs))
    assert family.comparison(old, new).verdict is Verdict.SLOWER
    assert family.comparison(new, old).verdict is Verdict.FASTER


def test_a_recipe_listed_before_its_stack_is_in_the_family():
    made = raced(equals(5, competitors=4) + np.log([[1.0], [2.0], [4.0], [8.0]]))
    eager, quantised, xla, also = made["benchmarks"]
    for recipe, stack in ((quantised, eager), (also, xla)):
        recipe["definition"] |= {**stack["definition"], "precision": "int8wo"}
        recipe["definition"] |= {"compiler": "fast+int8wo", "options": ["int8wo"]}
    made["benchmarks"] = [also, quantised, eager, xla]
    (also, quantised, eager, xla), family = found_in(made)
    for stack, recipe in ((eager, quantised), (xla, also)):
        assert family.comparison(stack, recipe).verdict is Verdict.SLOWER


def test_what_is_plain_is_found_among_nine():
    logs = equals(4)
    logs[5] -= 0.5
    cases, family = found_in(raced(logs))
    others = [case for case in cases if case is not cases[5]]
    assert {family.comparison(other, cases[5]).verdict for other in others} == {Verdict.FASTER}


@pytest.mark.parametrize("seed", range(6))
def test_table_sentence_page_and_api_agree(seed, capsys):
    logs = equals(seed, competitors=6)
    logs[0] += 0.03
    made = raced(logs)
    cases = list(cases_of(decoded(made)))
    verdicts = {item.competitor: item for item in compare_to_baseline(cases, EAGER)}
    page = summarize(read(made))
    for judged in page.judged:
        if judged.comparison:
            assert judged.comparison.verdict is verdicts[judged.case.competitor].verdict
    shown = table(made, capsys).splitlines()
    for name, item in verdicts.items():
        [line] = [line for line in shown if f" {name} " in line]
        assert item.verdict.value in line
    first, *rest = summary_lines(cases)
    [best] = [case.competitor for case in cases if first.startswith(f"Use {case.competitor} ")]
    certain = next((line for line in rest if line.startswith("It is clearly faster")), "")
    if best != EAGER:
        assert (EAGER in certain) == (verdicts[best].verdict is Verdict.FASTER)
    faster = {name for name, item in verdicts.items() if item.verdict is Verdict.FASTER}
    winner = page.contests[0].winner
    assert (winner.competitor in faster) if faster else (winner is None)
    assert ("No winner" in page_headline(page)) == (not faster)
