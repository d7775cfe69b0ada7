"""The list of faults: whole, and long enough."""

from pathlib import Path

from fault_list import BENCHFILES, NAMED, OTHERS, RUNS, WRONG

TESTS = Path(__file__).parents[1]


def test_each_fault_that_the_issue_names_is_planted():
    planted = [name for name in (*RUNS, *BENCHFILES, *WRONG, *OTHERS) if name != "good"]
    assert len(planted) == len(set(planted)) >= 40
    assert {name for names in NAMED.values() for name in names} <= set(planted)


def test_those_of_tests_of_their_own_are_there():
    files = ("harness/test_bench_faults.py", "unit/interop/test_bench_config.py")
    source = "".join((TESTS / file).read_text() for file in files)
    assert [name for name in OTHERS if f'"{name}"' not in source] == []
