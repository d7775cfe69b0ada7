"""Remarks on a comparison of two files: noise floor, withheld verdicts, drift."""

import pytest
from results_support import completed, plain_document
from test_compare import HOST, document, metrics, record
from test_compare_unchanged import compiled

from comparative_benchmark.results.comparing.compare import compare_documents
from comparative_benchmark.results.comparing.compare_remarks import remarks
from comparative_benchmark.results.comparing.noise_floor import noise_floor, save_noise_floor


def at(time, *records, **host):
    """A file of a run at that time, on a host with these conditions."""
    made = document(*(records or [record()]), host={**HOST, **host})
    for item in (*made["runs"], *made["benchmarks"]):
        item["run_id"] = f"run-{time}"
    made["runs"][0]["trigger"] = {"timestamp": time}
    return made


MORNING = "2026-03-01T08:00:00+00:00"


def found(baseline, candidate):
    old, new = completed(baseline), completed(candidate)
    return remarks(old, new, compare_documents(old, new))


def test_runs_of_the_same_hour_and_conditions_are_not_remarked():
    assert found(at(MORNING), at("2026-03-01T09:59:00+01:00")).lines == []


@pytest.mark.parametrize(
    ("time", "words"),
    [
        ("2026-03-01T10:30:00+00:00", "2.5 hours"),
        ("2026-02-27T08:00:00Z", "2 days"),
        ("2026-03-01T06:59:00+00:00", "1.0 hours"),
    ],
)
def test_runs_more_than_an_hour_apart_are(time, words):
    (line,) = found(at(MORNING), at(time)).lines
    assert f"(measured {words} apart), and intervals do not cover" in line


def test_the_load_before_a_run_is_no_condition():
    """It includes the suite's own previous run; blocks record what others use."""
    idle, busy = {"load_average": [0.1, 0, 0]}, {"load_average": [1.7, 0, 0]}
    assert found(at(MORNING, **idle), at("2026-03-01T08:00:01Z", **busy)).drift is None


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ({"governor": "performance"}, {"governor": "powersave"}, "governor performance vs p"),
        ({"system": "Linux 6.1"}, {"system": "Linux 6.8"}, "system Linux 6.1 vs Linux 6.8"),
        ({"pinned_cpus": [0, 1]}, {"pinned_cpus": [2, 3]}, "pinned_cpus (0, 1) vs (2, 3)"),
        ({"hostname": "a"}, {"hostname": "b"}, "hostname a vs b"),
    ],
)
def test_conditions_that_differ_are_named(before, after, words):
    assert words in found(at(MORNING, **before), at("2026-03-01T08:00:01Z", **after)).drift


@pytest.mark.parametrize(
    ("before", "after"), [([0.3, 0, 0], [0.7, 0, 0]), ([0, 0, 0], [0.5, 9, 9])]
)
def test_loads_that_are_about_equal_are_not_remarked(before, after):
    sides = at(MORNING, load_average=before), at("2026-03-01T08:10:00Z", load_average=after)
    assert found(*sides).drift is None


def test_clocks_are_read_from_the_blocks():
    [usual] = plain_document()["benchmarks"][0]["metrics"].values()
    conditions = usual["processes"][0]["blocks"][0]["conditions"]
    sides = []
    for minute, mhz in enumerate((3000.0, 2500.0)):
        level = metrics()
        for process in level["processes"]:
            for block in process["blocks"]:
                block["conditions"] = {**conditions, "mean_mhz": mhz}
        sides.append(at(f"2026-03-01T08:0{minute}:00Z", record(level=level)))
    assert "clocks 3000 MHz vs 2500 MHz" in found(*sides).drift


def test_variables_that_change_speed_are_named_where_both_sides_recorded_them():
    sides = [
        at(f"2026-03-01T08:0{minute}:00Z", record(level={**metrics(), **recorded}))
        for minute, recorded in enumerate(
            ({"variables": {"XLA_FLAGS": "--a", "OMP_X": "1"}}, {"variables": {"OMP_X": "1"}}, {})
        )
    ]
    assert "XLA_FLAGS --a vs unset" in found(*sides[:2]).drift
    assert "OMP_X" not in found(*sides[:2]).drift
    assert found(*sides[1:]).drift is None


def test_what_workers_computed_with_is_named_where_both_sides_tell():
    usual = {"threads": 4, "allocator": "glibc 2.36", "affinity": [0, 1, 2, 3]}
    usual |= {"denormals_before": "kept", "denormals_after": "kept", "blas": ["MKL"]}
    changed = {"threads": 2, "allocator": "libtcmalloc.so.4", "affinity": [0, 1], "blas": []}
    sides = []
    for minute, effective in enumerate((usual, {**usual, **changed, "denormals_after": "ftz"}, {})):
        level = metrics()
        for process in level["processes"] if effective else ():
            process["effective"] = effective
        sides.append(at(f"2026-03-01T08:0{minute}:00Z", record(level=level)))
    drift = found(*sides[:2]).drift
    for words in (
        "effective threads 4 vs 2",
        "denormals kept vs kept, then ftz",
        "allocator glibc 2.36 vs libtcmalloc.so.4",
        "BLAS MKL vs unknown",
        "worker CPUs 4 vs 2",
    ):
        assert words in drift
    assert "inter-op" not in drift
    assert found(*sides[1:]).drift is None


def test_processes_that_differ_are_named_with_all_values():
    sides = []
    for minute, allocators in enumerate((["a", "a"], ["b", "a"])):
        level = metrics()
        level["processes"] = [
            {**process, "effective": {"allocator": name}}
            for process, name in zip(level["processes"][:1] * 2, allocators, strict=True)
        ]
        sides.append(at(f"2026-03-01T08:0{minute}:00Z", record(level=level)))
    assert "allocator a vs a or b" in found(*sides).drift


def test_only_runs_of_compared_cases_count():
    old = at("2020-01-01T00:00:00Z", record("w9"))
    new = at(MORNING)
    new["runs"] += old["runs"]
    new["benchmarks"] += old["benchmarks"]
    assert found(at(MORNING), new).drift is None


def test_a_file_with_itself_has_no_drift_and_no_floor():
    same = at(MORNING, compiled(), load_average=[9.0, 9.0, 9.0])
    assert found(same, same).lines == []


def test_the_floor_of_both_files_and_the_saved_one_stand_before_the_drift():
    before = at(MORNING, compiled())
    after = at("2026-03-02T08:00:00Z", compiled(1, scale=1.021))
    lines = found(before, after).lines
    assert lines[0] == "noise floor: 1 unchanged program differs by 2.1 %"
    assert lines[1].startswith("verdicts withheld: ")
    assert "--count-unchanged" in lines[1]
    assert "24.0 hours apart" in lines[-1]
    assert len(lines) == 3
    third = at("2026-03-03T08:00:00Z", compiled(2, scale=1.05))
    save_noise_floor(noise_floor([completed(before), completed(third)]))
    lines = found(before, after).lines
    assert lines[1] == "saved noise floor: 1 unchanged program differs by 5.0 %"
    assert "24.0 hours apart" in lines[-1]


def test_files_of_two_machines_have_no_floor():
    days = [f"2026-03-0{day}T08:00:00Z" for day in (2, 3, 4)]
    two = [at(days[i], compiled(i, scale=1 + i / 9), cpu_model="B") for i in range(2)]
    merged = at(MORNING, compiled(4))
    for document_ in (at(days[2], compiled(5)), *two):
        merged["runs"] += document_["runs"]
        merged["benchmarks"] += document_["benchmarks"]
    assert found(merged, merged).noise_floor is None


def test_a_file_without_results_has_nothing_to_remark():
    assert found(at(MORNING), {"benchmarks": []}).lines == []
