"""Competitors that ran in an environment of another name are other competitors."""

import pytest
from results_support import decoded, plain_document
from test_compare import compare_documents, compare_to_baseline, document, metrics, one, record

from comparative_benchmark.analysis.stats.analysis import Verdict
from comparative_benchmark.results.comparing.compare import Fate
from comparative_benchmark.results.results_file import ResultsFileError


def inside(name, seed=0, **scale):
    return record(level=metrics(seed, **scale), environment={"name": name, "python": "/x"})


def test_an_environment_is_part_of_the_name():
    found = one(document(inside("old")), document(inside("old", 1, scale=1.1)))
    assert found.competitor == "jax_xla:xla@old"
    assert found.verdict is Verdict.SLOWER
    assert one(document(record()), document(record(environment=None))).competitor == "jax_xla:xla"


def test_environments_are_not_taken_for_each_other():
    both = document(inside("old"), inside("new", 1, scale=1.1), record(level=metrics(2)))
    found = compare_documents(both, both)
    assert [item.competitor for item in found] == [
        *("jax_xla:xla@old", "jax_xla:xla@new", "jax_xla:xla")
    ]
    apart = compare_documents(document(inside("old")), document(inside("new")))
    assert {item.fate for item in apart} == {Fate.MISSING}


def test_an_environment_can_be_the_baseline():
    (found,) = compare_to_baseline([inside("old"), inside("new", 1, scale=1.1)], "jax_xla:xla@old")
    assert found.competitor == "jax_xla:xla@new"
    assert found.verdict is Verdict.SLOWER


@pytest.mark.parametrize("odd", ["old", 7, [], {}, {"name": None}, {"name": ""}, {"name": 3}])
def test_an_environment_without_a_name_is_refused(odd):
    whole = plain_document()
    whole["benchmarks"][0]["definition"]["environment"] = odd
    with pytest.raises(ResultsFileError, match=r"\$\.benchmarks\[0\]\.definition\.environment"):
        decoded(whole)
