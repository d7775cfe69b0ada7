"""Measures how fast the history imports, finds and judges results, compared with simple methods.

Imports 10,000 results from files, fills a database with rows, queries a trend, a filter and the
latest nights, and searches for steps in a year of nights of many series. No other tool answers from
a database, so the peer of the trend is a simple script that reads all JSON files. The search for
steps has two peers: airspeed velocity (asv), if it is installed, and a search over all segments
with a numpy median for each. Both are slow, so they get only a few of the same series. asv chooses
its penalty itself, so it may find other steps.

    python benchmarks/history.py [--rows 1000000] [--series 1000] [--nights 365] [--quick]
"""

import argparse
import contextlib
import datetime
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import _made_results
import attrs
import numpy as np
from _timing import print_goal, print_table

from comparative_benchmark.analysis.stats.steps import Array, boundaries, noise_scale, penalties
from comparative_benchmark.reporting.history import queries, results_files
from comparative_benchmark.reporting.history.database import Database, Writer, import_files
from comparative_benchmark.reporting.history.queries import Filter
from comparative_benchmark.reporting.history.regressions import find_regressions
from comparative_benchmark.reporting.history.rows import Row

START = datetime.datetime(2025, 11, 1, 2, tzinfo=datetime.UTC)
IMPORT_GOAL_S, STEPS_GOAL_S, QUERY_GOAL_S = 10.0, 30.0, 1.0
T = TypeVar("T")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--results", type=int, default=10_000, help="number of results to import")
    parser.add_argument("--rows", type=int, default=1_000_000, help="number of database rows")
    parser.add_argument("--series", type=int, default=1_000)
    parser.add_argument("--nights", type=int, default=365)
    parser.add_argument("--db", help="database for the rows (default: a new SQLite file)")
    parser.add_argument("--quick", action="store_true", help="try the script with small numbers")
    options = parser.parse_args()
    if options.quick:
        options.results, options.rows, options.series, options.nights = 300, 5_000, 40, 60
    goals = []
    with tempfile.TemporaryDirectory(prefix="cbs-history-") as name:
        folder = Path(name)
        goals += imports(folder, options.results)
        goals += large(folder, options)
    goals += steps(options.series, options.nights)
    for goal, seconds, most in goals:
        print_goal(goal, met=seconds < most, found=f"{seconds:.3g} s")


def imports(folder: Path, results: int) -> list[tuple[str, float, float]]:
    """Imports results files of 100 records each; the peer reads one trend from the same files."""
    random = np.random.default_rng(0)
    paths = []
    for night in range(-(-results // 100)):
        paths.append(folder / f"results-{night}.json")
        paths[-1].write_text(json.dumps(document(night, 100, random)))
    size = sum(path.stat().st_size for path in paths)
    with contextlib.closing(Database(str(folder / "imports.sqlite"))) as database:
        first, done = timed(lambda: import_files(database, results_files.read, paths))
        assert done.written.added == len(paths) * 100
        assert not done.refused
        again, done = timed(lambda: import_files(database, results_files.read, paths))
        assert done.written.added == 0
        which = Filter(texts={"benchmark": ["models/case-7"]})
        asked, points = timed(lambda: list(queries.records(database, which)))
    plain, values = timed(lambda: trend_of_files(paths, "models/case-7"))
    assert len(points) == len(values) == len(paths)
    print_table(
        [f"{len(paths) * 100} results, {size / 1e6:.0f} MB of JSON", "s", "CPU s"],
        [
            ["import into SQLite", *first.cells()],
            ["the same import again", *again.cells()],
            ["one trend from the history", *asked.cells()],
            ["peer: one trend from the JSON files", *plain.cells()],
        ],
    )
    print()
    goal = f"import of {len(paths) * 100} results into SQLite < {IMPORT_GOAL_S:g} s"
    return [(goal, first.wall_s, IMPORT_GOAL_S)]


def large(folder: Path, options: argparse.Namespace) -> list[tuple[str, float, float]]:
    """Fills a database with rows and runs the usual queries."""
    location = options.db or str(folder / "large.sqlite")
    nights = -(-options.rows // options.series)
    with contextlib.closing(Database(location)) as database:
        filled, written = timed(lambda: Writer(database).add(rows(options.series, nights)))
        last = START + datetime.timedelta(days=nights - 30)
        one = {"benchmark": ["models/case-7"], "backend": ["jax_xla"], "device": ["host-cpu"]}
        asked: dict[str, Callable[[], Any]] = {
            "trend of one case": lambda: list(queries.records(database, Filter(texts=one))),
            "the newest 50 results": lambda: list(queries.records(database, Filter(newest=50))),
            "the last 30 nights of a pattern of cases": lambda: list(
                queries.records(database, Filter(texts={"workload": ["case-7*"]}, since=last))
            ),
            "results of a package version": lambda: list(
                queries.records(database, Filter(versions={"jax": [f"0.9.{nights - 1}"]}))
            ),
            "list of all trends": lambda: queries.series(database, Filter()),
            "regressions of all, window of 60 nights": lambda: find_regressions(database, Filter()),
        }
        table: list[list[str]] = []
        times: dict[str, Spent] = {}
        for name, ask in asked.items():
            runs = [timed(ask) for _ in range(3)]
            times[name] = sorted((spent for spent, _ in runs), key=lambda spent: spent.wall_s)[1]
            found = runs[0][1]
            size = len(found.findings) if hasattr(found, "findings") else len(found)
            table.append([name, *times[name].cells(), str(size)])
    total = written.added + written.known
    size_mb = Path(location).stat().st_size / 1e6 if Path(location).is_file() else 0.0
    print_table([f"{total} rows, {size_mb:.0f} MB", "s", "CPU s", "found"], table)
    print(
        f"filled in {filled.wall_s:.1f} s ({filled.cpu_s:.1f} s of CPU), "
        f"{total / filled.wall_s:,.0f} rows per second"
    )
    print()
    name = "trend of one case"
    return [(f"{name} of {total} rows < {QUERY_GOAL_S:g} s", times[name].wall_s, QUERY_GOAL_S)]


def steps(series: int, nights: int) -> list[tuple[str, float, float]]:
    """Finds the pieces of many series, and compares a few series with the peers."""
    random = np.random.default_rng(1)
    values = 0.01 * random.standard_normal((series, nights))
    # Every fourth series has a step somewhere.
    for row in range(0, series, 4):
        values[row, random.integers(5, nights) :] += 0.08
    known = np.ones(values.shape, dtype=np.bool_)
    penalty = penalties(noise_scale(values, known), known.sum(axis=1), 1e-3)
    ours, found = timed(lambda: boundaries(values, known, penalty))
    few = min(4, series)
    peer, same = timed(lambda: [all_segments(values[i], penalty[i]) for i in range(few)])
    for row in range(few):
        assert cost(values[row], found[row], penalty[row]) <= same[row] + 1e-9
    table = [
        ["cbs history", *ours.cells(), f"{ours.cpu_s / series:.5f}"],
        [f"peer: all segments, numpy ({few} series)", *peer.cells(), f"{peer.cpu_s / few:.5f}"],
    ]
    try:
        from asv.step_detect import detect_steps
    except ModuleNotFoundError:
        print("no peer: asv is not installed")
    else:
        some = min(20, series)
        spent, theirs = timed(lambda: [detect_steps(values[i].tolist()) for i in range(some)])
        table.append([f"peer: asv ({some} series)", *spent.cells(), f"{spent.cpu_s / some:.5f}"])
        pieces = sum(len(found[i]) + 1 for i in range(some)), sum(map(len, theirs))
        print(f"pieces of {some} series: {pieces[0]}, {pieces[1]} by asv")
    print_table(
        [f"steps of {series} series of {nights} nights", "s", "CPU s", "CPU s per series"], table
    )
    print(f"pieces found: {sum(map(len, found)) + series}")
    print()
    goal = f"steps of {series} series x {nights} nights < {STEPS_GOAL_S:g} s"
    return [(goal, ours.wall_s, STEPS_GOAL_S)]


def all_segments(values: Array, penalty: float) -> float:
    """Returns the lowest cost of a fit; tries every last piece at every night."""
    best = np.full(len(values) + 1, np.inf)
    best[0] = -penalty
    for stop in range(1, len(values) + 1):
        for start in range(stop):
            piece = values[start:stop]
            deviation = float(np.abs(piece - np.median(piece)).sum())
            best[stop] = min(best[stop], best[start] + penalty + deviation)
    return float(best[-1])


def cost(values: Array, starts: list[int], penalty: float) -> float:
    pieces = np.split(values, starts)
    return penalty * len(starts) + sum(float(np.abs(p - np.median(p)).sum()) for p in pieces)


def rows(series: int, nights: int) -> Iterator[Row]:
    random = np.random.default_rng(2)
    for night in range(nights):
        factors = 1 + 0.01 * random.standard_normal((series, 4))
        for case in range(series):
            latency = (1 + case) * float(factors[case, 0])
            yield Row(
                workload=f"case-{case}",
                benchmark=f"models/case-{case}",
                framework="jax",
                backend="jax_xla",
                compiler="xla",
                device="host-cpu",
                machine="A CPU",
                threads=2,
                time=START + datetime.timedelta(days=night),
                run_id=f"run-{night}",
                revision=f"{night:040x}",
                versions={"jax": f"0.9.{night}", "numpy": "2.4.6"},
                program=f"{case * 100_000 + night // 7:064x}",
                status="ok",
                latency_ms=latency,
                latency_low_ms=latency * 0.995,
                latency_high_ms=latency * 1.005,
                processes=3,
                compile_ms=100 * float(factors[case, 1]),
                warm_compile_ms=20 * float(factors[case, 2]),
                host_memory_mb=300 * float(factors[case, 3]),
                error=1e-6,
                identity=f"{night}-{case}",
            )


def document(night: int, cases: int, random: np.random.Generator) -> dict[str, Any]:
    """Returns a results file with the samples of a usual run: 3 processes with 40 samples each."""
    made = _made_results.document(20)
    [run] = made["runs"]
    usual = next(record for record in made["benchmarks"] if record["status"] == "ok")
    usual["run_id"] = run["run_id"] = f"run-{night}"
    run["trigger"]["timestamp"] = (START + datetime.timedelta(days=night)).isoformat()
    usual["versions"] = {"jax": f"0.9.{night}", "numpy": "2.4.6"}
    return {**made, "benchmarks": [record(usual, case, random) for case in range(cases)]}


def record(usual: dict[str, Any], case: int, random: np.random.Generator) -> dict[str, Any]:
    processes: list[dict[str, Any]] = []
    for _ in range(3):
        values = (1 + 0.01 * random.standard_normal((4, 10))).tolist()
        blocks = [{"round": number, "latencies_ms": some} for number, some in enumerate(values)]
        processes.append({"blocks": blocks, "artifact_sha256": "a" * 64})
    samples = [v for p in processes for b in p["blocks"] for v in b["latencies_ms"]]
    definition, [(level, metrics)] = usual["definition"], usual["metrics"].items()
    workload = {**definition["workload"], "digest": f"{case:064x}", "label": f"case-{case}"}
    name = f"models/case-{case}"
    return {
        **usual,
        "definition": {**definition, "benchmark_name": name, "workload": workload},
        "metrics": {level: {**metrics, "processes": processes, "latencies_ms": samples}},
    }


def trend_of_files(paths: list[Path], benchmark: str) -> list[float]:
    found = []
    for path in paths:
        for item in json.loads(path.read_text())["benchmarks"]:
            if item["definition"]["benchmark_name"] == benchmark:
                [level] = item["metrics"].values()
                found.append(statistics.median(level["latencies_ms"]))
    return found


@attrs.frozen
class Spent:
    """Wall time and CPU time of this process, in seconds.

    On a shared machine, the CPU time is the cost of the code. Tables contain both; goals use the
    wall time.
    """

    wall_s: float
    cpu_s: float

    def cells(self) -> list[str]:
        """Returns both times for a table."""
        return [f"{self.wall_s:.3f}", f"{self.cpu_s:.3f}"]


def timed(call: Callable[[], T]) -> tuple[Spent, T]:
    wall, cpu = time.perf_counter(), time.process_time()
    found = call()
    return Spent(time.perf_counter() - wall, time.process_time() - cpu), found


if __name__ == "__main__":
    main()
