"""The noise floor from programs that did not change, and `cbs doctor --noise-floor`."""

import argparse
import json
import math
from types import SimpleNamespace

import attrs
import pytest
from results_support import completed
from test_compare import HOST, document
from test_compare_unchanged import compiled

from comparative_benchmark.analysis.stats.planning import SamplingRule
from comparative_benchmark.cli.commands import doctor as command
from comparative_benchmark.cli.options import maintenance as options
from comparative_benchmark.engine import runner
from comparative_benchmark.engine.settings import RunSettings
from comparative_benchmark.results.comparing import noise_floor as module
from comparative_benchmark.results.comparing.noise_floor import (
    Noise,
    NoiseFloorError,
    floor_text,
    load_noise_floor,
    save_noise_floor,
)
from comparative_benchmark.results.results_file import plain
from openxla.benchmark.devices import HOST_CPU

pytestmark = pytest.mark.slow


def noise_floor(documents):
    return module.noise_floor(map(completed, documents))


def run(number, *records, **host):
    made = document(*records, host={**HOST, **host})
    for item in (*made["runs"], *made["benchmarks"]):
        item["run_id"] = f"run-{number}"
    return made


def exact(latency, **changes):
    """A record whose processes all take exactly that long."""
    made = compiled(**changes)
    for process in made["metrics"]["framework_level"]["processes"]:
        for block in process["blocks"]:
            block["latencies_ms"] = [latency] * 3
    return made


def test_a_file_of_one_run_has_no_floor():
    assert noise_floor([run(0, exact(1.0))]).pooled is None


def test_the_floor_of_two_runs_is_their_difference():
    for order in (1, -1):
        sides = [run(0, exact(1.0)), run(1, exact(1.02))][::order]
        floor = noise_floor(sides)
        assert floor.machine == "A CPU"
        assert (floor.pooled.pairs, floor.pooled.programs) == (1, 1)
        assert floor.pooled.median_percent == pytest.approx(2.0)
        assert floor.competitors == {"jax_xla:xla": floor.pooled}


def test_quantiles_are_of_all_pairs_of_all_programs():
    files = [
        run(0, exact(1.0), exact(1.0, digest="b" * 64, competitor="iree:llvm-cpu")),
        run(1, exact(1.01), exact(1.5, digest="b" * 64, competitor="iree:llvm-cpu")),
        run(2, exact(1.03)),
    ]
    floor = noise_floor(files)
    assert (floor.pooled.pairs, floor.pooled.programs) == (4, 2)
    assert floor.pooled.largest_percent == pytest.approx(50)
    middle = math.sqrt(1.03 / 1.01 * 1.03)
    assert floor.pooled.median_percent == pytest.approx(100 * (middle - 1))
    assert {name: noise.pairs for name, noise in floor.competitors.items()} == {
        "iree:llvm-cpu": 1,
        "jax_xla:xla": 3,
    }
    assert floor.competitors["jax_xla:xla"].median_percent == pytest.approx(100 * 2 / 101)


def test_two_runs_of_one_file_are_a_pair():
    merged = run(0, exact(1.0))
    later = run(1, exact(1.1))
    merged["runs"] += later["runs"]
    merged["benchmarks"] += later["benchmarks"]
    assert noise_floor([merged]).pooled.pairs == 1


def test_equal_run_ids_of_two_files_are_a_pair_unless_one_is_a_copy():
    one = run(0, exact(1.0))
    assert noise_floor([one, run(0, exact(1.1))]).pooled.pairs == 1
    assert noise_floor([one, one]).pooled is None
    assert noise_floor([one, run(1, exact(1.1)), one]).pooled.pairs == 1


NO_PAIRS = {
    "another program": run(1, exact(1.1, digest="b" * 64)),
    "no digest": run(1, exact(1.1, digest=None)),
    "another version": run(1, exact(1.1, versions={"jaxlib": "9"})),
    "another workload": run(1, exact(1.1, workload={"digest": "w9"})),
    "another competitor": run(1, exact(1.1, competitor="iree:llvm-cpu")),
    "another environment": run(1, exact(1.1, environment={"name": "old", "python": "x"})),
    "another device": run(1, exact(1.1, device="gpu")),
    "another machine": run(1, exact(1.1), cpu_model="B CPU"),
    "other threads": run(1, exact(1.1), threads=1),
    "another interpreter": run(1, exact(1.1), python="3.13.0"),
    "a failure": run(1, exact(1.1, status="wrong_output")),
    "bad samples": run(1, exact(0.0)),
    "nothing": {"benchmarks": []},
}


@pytest.mark.parametrize("other", NO_PAIRS.values(), ids=NO_PAIRS)
def test_only_what_did_not_change_is_a_pair(other):
    floor = noise_floor([run(0, exact(1.0)), other])
    assert floor.pooled is None
    assert floor.competitors == {}


NOT_KNOWN = {
    "a development version": {"versions": {"jaxlib": "0.10.2.dev1"}},
    "no versions": {"versions": {}},
}


@pytest.mark.parametrize("changes", NOT_KNOWN.values(), ids=NOT_KNOWN)
def test_what_ran_the_program_must_be_known(changes):
    sides = [run(i, exact(1 + i / 10, **changes)) for i in range(2)]
    assert noise_floor(sides).pooled is None


def test_the_machine_must_be_known():
    unknown = {"cpu_model": None, "architecture": ""}
    sides = [run(i, exact(1 + i / 10), **unknown) for i in range(2)]
    assert noise_floor(sides).pooled is None


def test_compile_only_results_have_no_latency_to_be_noisy():
    sides = [run(i, exact(1 + i / 10)) for i in range(2)]
    for side in sides:
        side["benchmarks"][0]["metrics"]["framework_level"]["stop_reason"] = "compile_only"
    assert noise_floor(sides).pooled is None


def test_another_revision_of_the_harness_is_part_of_the_noise():
    sides = [run(0, exact(1.0)), run(1, exact(1.1))]
    for side, revision in zip(sides, ("abc", "def"), strict=True):
        side["runs"][0]["execution_environment"]["git_revision"] = revision
    assert noise_floor(sides).pooled.pairs == 1


def test_pairs_of_two_machines_are_refused():
    sides = [run(i, exact(1 + i / 10), cpu_model=name) for i, name in enumerate("AABB")]
    with pytest.raises(NoiseFloorError, match="from one machine, got A, B"):
        noise_floor(sides)


def noise(pairs, programs, median=0.42, p95=2.13, largest=12.3):
    return Noise(
        pairs=pairs,
        programs=programs,
        median_percent=median,
        p95_percent=p95,
        largest_percent=largest,
    )


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (noise(12, 12), "12 unchanged programs differ by 0.4 % (median), 2.1 % (95 %)"),
        (noise(1, 1), "1 unchanged program differs by 0.4 %"),
        (
            noise(3, 1),
            "1 unchanged program (3 pairs of runs) differs by 0.4 % (median), 12 % (at most)",
        ),
    ],
)
def test_the_floor_in_words(found, text):
    assert floor_text(found) == text


def test_a_saved_floor_comes_back_by_its_machine(root):
    floor = noise_floor([run(0, exact(1.0)), run(1, exact(1.1))])
    assert load_noise_floor("A CPU") is None
    path = save_noise_floor(floor)
    assert path == root / "noise-floor-a-cpu.json"
    assert load_noise_floor("A CPU") == floor
    assert load_noise_floor("B CPU") is None
    assert [entry.name for entry in root.iterdir()] == [path.name]


@pytest.mark.parametrize(
    "change",
    [
        "",
        "{",
        "[]",
        "{}",
        "[" * 100_000,
        {"schema": 0},
        {"pooled": {"pairs": -1}},
        {"pooled": None},
    ],
)
def test_a_damaged_floor_gives_none(change):
    floor = noise_floor([run(0, exact(1.0)), run(1, exact(1.1))])
    path = save_noise_floor(floor)
    text = change if isinstance(change, str) else json.dumps(attrs.asdict(floor) | change)
    path.write_text(text)
    assert load_noise_floor("A CPU") is None


def test_a_floor_that_can_not_be_written_leaves_the_old_one(monkeypatch):
    floor = noise_floor([run(0, exact(1.0)), run(1, exact(1.1))])
    path = save_noise_floor(floor)
    before = path.read_bytes()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("comparative_benchmark.results.results_file.os.fsync", fail)
    with pytest.raises(OSError, match="No space"):
        save_noise_floor(attrs.evolve(floor, competitors={}))
    assert path.read_bytes() == before


@pytest.fixture
def doctor(monkeypatch, tmp_path):
    """Runs `cbs doctor --noise-floor` on documents, with no findings of this machine."""
    monkeypatch.setattr(command, "examine", lambda _: [])

    def run_doctor(*documents, arguments=()):
        paths = []
        for number, value in enumerate(documents):
            paths.append(tmp_path / f"{number}.json")
            content = value if isinstance(value, str) else json.dumps(plain(completed(value)))
            paths[-1].write_text(content)
        parser = argparse.ArgumentParser()
        options.add_doctor_arguments(parser)
        given = [*arguments, "--noise-floor", *map(str, paths)]
        return command.run(parser.parse_args(given))

    return run_doctor


def test_the_doctor_prints_and_keeps_the_floor(doctor, capsys):
    assert doctor(run(0, exact(1.0)), run(1, exact(1.023))) == 0
    out, err = capsys.readouterr()
    assert "noise floor, A CPU" in out
    assert "2.3" in out
    assert "noise-floor-a-cpu.json" in err
    assert load_noise_floor("A CPU").pooled.median_percent == pytest.approx(2.3)

    assert "on this machine, 10 processes per competitor can detect" in out
    assert "3.0 % would take" in out


def test_a_floor_of_an_earlier_version_foretells_nothing():
    floor = noise_floor([run(0, exact(1.0)), run(1, exact(1.02))])
    assert floor.pooled.outlook(SamplingRule()) is not None
    path = save_noise_floor(floor)
    earlier = json.loads(path.read_text())
    for kept in (earlier["pooled"], *earlier["competitors"].values()):
        del kept["processes"]
    path.write_text(json.dumps(earlier))
    assert load_noise_floor("A CPU").pooled.outlook(SamplingRule()) is None


@pytest.mark.parametrize(("latency", "said"), [(1.05, True), (1.0002, False)])
def test_a_race_is_told_what_it_cannot_decide_before_it_begins(latency, said):
    save_noise_floor(noise_floor([run(0, exact(1.0)), run(1, exact(latency))]))
    found = []
    runner._report_noise_floor(
        RunSettings(device=HOST_CPU, sampling=SamplingRule()),
        SimpleNamespace(host=SimpleNamespace(cpu_model="A CPU")),
        SimpleNamespace(say=found.append),
    )
    assert ["noise floor: on this machine, 10" in line for line in found] == [True] * said


def test_the_doctor_gives_the_floor_as_json(doctor, capsys):
    assert doctor(run(0, exact(1.0)), run(1, exact(1.5)), arguments=["--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["noise_floor"]["pooled"]["largest_percent"] == pytest.approx(50)


def test_the_doctor_says_where_nothing_is_unchanged(doctor, capsys):
    assert doctor(run(0, exact(1.0))) == 3
    assert "no unchanged program was measured twice" in capsys.readouterr().err
    assert not list(module.root_dir().glob("noise-floor*"))


@pytest.mark.parametrize(
    "bad", ["", "{", "[]", '{"schema_version": 2, "runs": [], "benchmarks": []}']
)
def test_the_doctor_refuses_what_is_no_results_file(doctor, capsys, bad):
    assert doctor(run(0, exact(1.0)), bad) == 1
    assert "1.json" in capsys.readouterr().err


def test_the_doctor_refuses_results_of_two_machines(doctor, capsys):
    sides = [run(i, exact(1 + i / 10), cpu_model=name) for i, name in enumerate("AABB")]
    assert doctor(*sides) == 1
    assert "from one machine, got A, B" in capsys.readouterr().err
