"""A program that did not change has not become faster or slower through its compiler."""

import copy

import pytest
from test_compare import (
    HOST,
    code,
    compare_documents,
    compare_to_baseline,
    document,
    metrics,
    one,
    record,
)

from comparative_benchmark.analysis.stats.analysis import Verdict

DIGEST = "a" * 64


def compiled(seed=0, *, scale=1.0, digest=DIGEST, versions=None, race=None, **changes):
    """A record whose program has a digest."""
    level = metrics(seed, scale=scale, race=race)
    level["program"] = {"artifact_sha256": digest}
    for process in level["processes"]:
        process["artifact_sha256"] = digest
    made = record(level=level, **changes)
    return {**made, "versions": {"jaxlib": "0.10.2"} if versions is None else versions}


BEFORE = document(compiled())


@pytest.mark.parametrize(
    ("scale", "percent", "plain"),
    [(1.05, "+5.0 %", Verdict.SLOWER), (0.8, "-20 %", Verdict.FASTER)],
)
def test_an_unchanged_program_is_unclear_and_gives_the_reason(scale, percent, plain):
    after = document(compiled(1, scale=scale))
    found = one(BEFORE, after)
    assert found.verdict is Verdict.UNCLEAR
    assert found.withheld is plain
    assert found.reason == (
        "the compiled program and the package versions are identical, so the machine caused the "
        f"{percent} difference"
    )
    assert found.ratio.estimate == pytest.approx(scale, rel=0.01)
    assert code(BEFORE, after) == 0
    (counted,) = compare_documents(BEFORE, after, count_unchanged=True)
    assert counted.verdict is plain
    assert counted.withheld is None


def test_what_is_the_same_stays_the_same():
    found = one(BEFORE, BEFORE)
    assert found.verdict is Verdict.SAME
    assert found.withheld is None


OTHERS = {
    "another program": document(compiled(1, scale=1.1, digest="b" * 64)),
    "no digest, as eager": document(compiled(1, scale=1.1, digest=None)),
    "other version": document(compiled(1, scale=1.1, versions={"jaxlib": "0.10.3"})),
    "further package": document(
        compiled(1, scale=1.1, versions={"jaxlib": "0.10.2", "numpy": "2"})
    ),
    "no versions": document(compiled(1, scale=1.1, versions={})),
    "options": document(compiled(1, scale=1.1, options=["freezing"])),
    "python": document(compiled(1, scale=1.1), host={**HOST, "python": "3.12.0"}),
}


@pytest.mark.parametrize("after", OTHERS.values(), ids=OTHERS)
def test_what_changed_or_is_not_known_keeps_the_plain_verdict(after):
    assert one(BEFORE, after).verdict is Verdict.SLOWER
    assert code(BEFORE, after) == 2


def test_nothing_known_on_both_sides_keeps_the_plain_verdict():
    for unknown in ({"digest": None}, {"versions": {}}, {"versions": {"jaxlib": "0.11.0.dev3"}}):
        sides = [document(compiled(seed, scale=1 + seed / 10, **unknown)) for seed in (0, 1)]
        assert one(*sides).verdict is Verdict.SLOWER


def test_a_machine_that_is_not_known_keeps_the_plain_verdict():
    sides = [
        document(compiled(seed, scale=1 + seed / 10), host={"cpu_model": None, "architecture": ""})
        for seed in (0, 1)
    ]
    assert one(*sides).verdict is Verdict.SLOWER


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        ({"versions": {"jaxlib": "0.10.3"}}, "jaxlib 0.10.2 vs 0.10.3"),
        ({"options": ["freezing"]}, "options () vs ('freezing',)"),
    ],
)
def test_an_unchanged_program_in_other_surroundings_hints_at_them(change, hint):
    found = one(BEFORE, document(compiled(1, scale=1.1, **change)))
    assert found.reason.endswith(f"; the compiled program is the same, but {hint}")


def under(seed, scale, *, allocator, variables):
    """A file of the program, by workers with that `malloc` and these variables."""
    made = compiled(seed, scale=scale)
    [level] = made["metrics"].values()
    level["variables"] = variables
    for process in level["processes"]:
        process["effective"] = {"allocator": allocator}
    return document(made)


@pytest.mark.parametrize(
    ("changed", "hint"),
    [
        ({"allocator": "libtcmalloc.so.4"}, "allocator glibc 2.36 vs libtcmalloc.so.4"),
        ({"variables": {"XLA_FLAGS": "--a"}}, "XLA_FLAGS unset vs --a"),
    ],
)
def test_an_unchanged_program_under_other_settings_keeps_the_plain_verdict(changed, hint):
    usual = {"allocator": "glibc 2.36", "variables": {}}
    found = one(under(0, 1.0, **usual), under(1, 1.1, **{**usual, **changed}))
    assert found.verdict is Verdict.SLOWER
    assert hint in found.reason
    assert one(under(0, 1.0, **usual), under(1, 1.1, **usual)).verdict is Verdict.UNCLEAR
    # A file without the setting is not evidence of another setting.
    assert one(BEFORE, under(1, 1.1, **usual)).verdict is Verdict.UNCLEAR


def test_another_harness_can_make_a_program_slower():
    sides = [document(compiled(seed, scale=1 + seed / 10)) for seed in (0, 1)]
    for side, revision in zip(sides, ("abc", "def"), strict=True):
        side["runs"][0]["execution_environment"]["git_revision"] = revision
    found = one(*sides)
    assert found.verdict is Verdict.SLOWER
    assert "harness revision abc vs def" in found.reason


def test_an_environment_of_that_name_with_another_interpreter_is_another():
    sides = []
    for seed, path in enumerate(("a", "b")):
        where = {"name": "old", "python": path}
        sides.append(document(compiled(seed, scale=1 + seed / 10, environment=where)))
    assert one(*sides).verdict is Verdict.SLOWER
    assert one(sides[0], sides[0]).verdict is Verdict.SAME


def test_processes_that_compiled_different_programs_are_not_unchanged():
    after = document(compiled(1, scale=1.1))
    before = copy.deepcopy(BEFORE)
    level = before["benchmarks"][0]["metrics"]["framework_level"]
    level["processes"][0]["artifact_sha256"] = "c" * 64
    assert one(before, after).verdict is Verdict.SLOWER


def test_a_race_keeps_its_verdicts_even_of_one_program():
    sides = [compiled(0, race="r"), compiled(1, scale=1.1, race="r")]
    paired = one(*(document(side) for side in sides))
    assert paired.paired
    assert paired.verdict is Verdict.SLOWER
    sides[0]["definition"].update(backend="pt_inductor", compiler="eager")
    (found,) = compare_to_baseline(sides)
    assert found.verdict is Verdict.SLOWER


def drifted(scale, *, changed):
    """A file that was measured on a slower machine, and one whose second program changed, too."""
    same, other = compiled(1, scale=scale), compiled(2, scale=changed, workload={"digest": "w2"})
    other["metrics"]["framework_level"]["program"] = {}
    return document(same, other)


@pytest.mark.parametrize(
    ("changed", "verdict", "withheld"),
    [
        (1.04, Verdict.UNCLEAR, Verdict.SLOWER),
        (0.97, Verdict.UNCLEAR, Verdict.FASTER),
        (1.1, Verdict.SLOWER, None),
        (0.9, Verdict.FASTER, None),
    ],
)
def test_a_difference_must_exceed_that_of_unchanged_programs(changed, verdict, withheld):
    before = drifted(1.0, changed=1.0)
    after = {**drifted(1.06, changed=changed)}
    after["runs"] = [{**after["runs"][0], "run_id": "later"}]
    for made in after["benchmarks"]:
        made["run_id"] = "later"
    [unchanged, other] = compare_documents(before, after)
    assert unchanged.withheld is Verdict.SLOWER
    assert (other.verdict, other.withheld) == (verdict, withheld)
    assert ("between these files" in other.reason) is (withheld is not None)
    [_, plain] = compare_documents(before, after, count_unchanged=True)
    assert plain.verdict is (withheld or verdict)
