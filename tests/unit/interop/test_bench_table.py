"""milabench's table and scores, on results with known rates."""

import json
import math
import statistics

import bench_support as support
import pytest

from comparative_benchmark.cli import main
from comparative_benchmark.interop.milabench import config, phases, scores, table
from comparative_benchmark.interop.milabench.processes import execution
from comparative_benchmark.results.record import EnvironmentName, Status
from comparative_benchmark.results.results_file import read_document

pytestmark = pytest.mark.slow


@pytest.fixture
def benches(tmp_path):
    for name in ("one", "two", "bad", "gone"):
        support.write(tmp_path / name)
    lines = {"one": [], "two": ["weight: 3", "plan: {method: njobs, n: 2}"], "bad": [], "gone": []}
    path = support.configured(tmp_path / "c.yaml", **lines)
    return {bench.name: bench for bench in config.read(path)}


def results_with(tmp_path, benches, factor=1.0):
    def results(run_id):
        warm = [
            [25.0 * factor, 50.0 * factor, *support.noisy(100 * factor * f)]
            for f in (0.99, 1, 1.01)
        ]
        both = [(support.noisy(200 * factor), 0), (support.noisy(300 * factor), 0)]
        return [
            support.made(tmp_path, benches["one"], [[(rates, 0)] for rates in warm], run_id=run_id),
            support.made(tmp_path, benches["two"], [both], run_id=run_id),
            support.made(tmp_path, benches["bad"], [[(support.noisy(7), 1)]], run_id=run_id),
        ]

    return results


def test_the_table_is_right(tmp_path, benches):
    results = support.keep(tmp_path / "r.json", results_with(tmp_path, benches))
    rows = {row.name: row for row in table.rows(list(benches.values()), results)}
    one, two, bad, gone = (rows[name] for name in ("one", "two", "bad", "gone"))
    medians = [statistics.median(support.noisy(100 * f)) for f in (0.99, 1, 1.01)]
    # Two rates of warm-up, a quarter and half of the speed, count for nothing.
    assert one.perf == pytest.approx(statistics.fmean(medians))
    assert one.sem == pytest.approx(statistics.stdev(medians) / math.sqrt(3) / one.perf)
    assert one.std == pytest.approx(0.0075, abs=0.001)
    assert (one.fail, one.n, one.peak_memory_mb) == (0, 3, 50.0)
    # Two processes at once: the mean of one, the sum in the score.
    assert two.perf == pytest.approx(250, rel=0.01)
    assert two.score == pytest.approx(500, rel=0.01)
    assert (two.fail, two.n) == (0, 2)
    assert (bad.fail, bad.n, bad.perf, bad.score) == (1, 1, None, 0.0)
    assert (gone.fail, gone.n, gone.status) == (1, 1, "missing")
    total = table.totals(list(rows.values()))
    assert total.failure_rate == pytest.approx(2 / 7)
    assert not total.passed
    logs = math.log1p(one.score) + 3 * math.log1p(two.score)
    assert total.score == pytest.approx(math.exp(logs / 6))


def test_commands_on_results(tmp_path, benches, capsys, monkeypatch):
    monkeypatch.delenv("MILABENCH_CONFIG", raising=False)
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    support.keep(old, results_with(tmp_path, benches))
    support.keep(new, results_with(tmp_path, benches, factor=1.5))
    configured = ["--config", str(tmp_path / "c.yaml")]
    assert main(["bench", "report", str(new), *configured]) == 1
    printed = capsys.readouterr().out
    assert "missing: no result" in printed
    assert "28.57% (FAIL)" in printed
    assert main(["bench", "report", str(new), *configured, "--select", "one,two"]) == 0
    assert "PASS" in capsys.readouterr().out
    out = tmp_path / "summary.json"
    assert main(["bench", "summary", str(new), "--out", str(out)]) == 1
    assert json.loads(out.read_text())["benchmarks"]["one"]["n"] == 3
    assert main(["bench", "summary", str(new), "--out", str(old)]) == 1
    assert f"{old} contains results; choose another file" in capsys.readouterr().err
    assert main(["bench", "summary", str(new), "--out", str(tmp_path)]) == 1
    message = f"cbs: --out {tmp_path} cannot be written: it is a directory\n"
    assert capsys.readouterr().err == message
    assert main(["show", str(new)]) == 0
    shown = capsys.readouterr().out
    assert "one, time per item" in shown
    assert "items/s" in shown
    assert f"again: cbs bench run --fulltrace --config {tmp_path}/c.yaml --select bad" in shown
    assert main(["bench", "compare", str(old), str(new)]) == 3  # one failed in both
    compared = capsys.readouterr().out
    assert "1.50" in compared
    assert "faster" in compared
    page, markdown = tmp_path / "page.html", tmp_path / "page.md"
    command = ["report", str(new), "-o", str(page), "--markdown", str(markdown)]
    assert main([*command, "--baseline", str(old)]) == 0
    assert "one, time per item" in page.read_text()
    text = markdown.read_text()
    assert (
        "| `one` | ok | 150 (146-154) items/s | 2.5 \N{RIGHTWARDS ARROW} 1.5 | 50 MB host |" in text
    )
    assert "faster \N{MINUS SIGN}33 %: `one, time per item`" in text


def test_a_score_relative_to_a_baseline_has_its_interval(tmp_path, benches):
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    support.keep(old, results_with(tmp_path, benches))
    support.keep(new, results_with(tmp_path, benches, factor=1.5))
    found = scores.compare(read_document(old), read_document(new), threshold=0.01)
    by_name = {item.name: item for item in found.benches}
    one = by_name["one"]
    assert one.comparison.verdict.value == "faster"
    assert one.speed.low < 1.5 < one.speed.high
    assert one.speed.estimate == pytest.approx(1.5)
    assert by_name["bad"].speed is None
    assert found.score.estimate == pytest.approx(1.5)
    assert found.score.low < 1.5 < found.score.high


def test_a_results_file_that_a_script_has_damaged_is_restored(tmp_path, benches):
    path = tmp_path / "r.json"
    support.keep(path, results_with(tmp_path, benches))
    before = path.read_bytes()
    assert not execution.restored(path, before)
    for damage in (b"", b"{}", before[: len(before) // 2], before.replace(b"200.0", b"900.0")):
        path.write_bytes(damage)
        assert execution.restored(path, before)
        assert path.read_bytes() == before
    path.unlink()
    assert execution.restored(path, before)
    # Another command's results are not damaged.
    support.keep(
        path,
        lambda run_id: [
            support.made(tmp_path, benches["gone"], [[(support.noisy(1), 0)]], run_id=run_id)
        ],
    )
    assert not execution.restored(path, before)
    assert len(read_document(path).benchmarks) == 4


def test_a_failed_process_of_several_makes_no_speed(tmp_path, benches):
    [result] = support.keep(
        tmp_path / "r.json",
        lambda run_id: [
            support.made(
                tmp_path, benches["two"], [[(support.noisy(200), 0), ([], -9)]], run_id=run_id
            )
        ],
    )
    assert result.status is Status.CRASHED
    assert result.reason == "two.1: killed by SIGKILL"
    assert result.measured.throughput.rate is None
    [row] = table.rows([benches["two"]], [result])
    assert (row.fail, row.n) == (1, 2)
    assert row.score == pytest.approx(200, rel=0.01)


@pytest.mark.parametrize(
    ("status", "failed"),
    [
        *((Status.FAILED, 1), (Status.WRONG_OUTPUT, 1)),
        *((Status.OK, 0), (Status.UNSTEADY, 0), (Status.UNSUPPORTED, 0)),
    ],
)
def test_a_failure_outside_all_processes_is_a_failure(tmp_path, benches, status, failed):
    replicates = [[(support.noisy(100), 0)]] * 2
    result = support.made(tmp_path, benches["one"], replicates, status=status, run_id="r")
    rows = table.rows([benches["one"]], [result])
    assert (rows[0].fail, rows[0].n) == (failed, 2)
    assert rows[0].score == (0.0 if failed else pytest.approx(100, rel=0.01))
    assert table.totals(rows).passed is (not failed)


def test_a_replicate_without_commands_is_a_failure(tmp_path, benches):
    replicates = [[(support.noisy(100), 0)], [], [(support.noisy(100), 0)]]
    result = support.made(tmp_path, benches["one"], replicates, run_id="r")
    assert (result.status, result.reason) == (Status.FAILED, "the benchfile ran no commands")
    [row] = table.rows([benches["one"]], [result])
    assert (row.fail, row.n, row.score) == (1, 2, 0.0)


def test_a_signal_without_a_name_ends_one_benchmark(tmp_path, benches):
    result = support.made(tmp_path, benches["one"], [[([], -40)]], run_id="r")
    assert (result.status, result.reason) == (Status.CRASHED, "killed by signal 40")


def test_racing_environments_get_the_batch_size_of_the_first(tmp_path, monkeypatch, capsys):
    support.write(tmp_path / "net")
    lines = ["argv: {--bs: auto_batch(16)}"]
    benches = config.read(support.configured(tmp_path / "net.yaml", net=lines))
    rates = {("old", 1): 100, ("old", 2): 150, ("old", 4): 151, ("new", 1): 100, ("new", 2): 90}
    ran = []

    def alternate(places, how, run_id):
        ran.append([(place.bench.environment.name, place.bench.batch_factor) for place in places])
        return [
            support.made(tmp_path, place.bench, [[(support.noisy(rates[key]), 0)]], run_id=run_id)
            for place, key in zip(places, ran[-1], strict=True)
        ]

    monkeypatch.setattr(phases, "_alternate", alternate)
    python = str(tmp_path / "bin" / "python")
    environments = [EnvironmentName(name=name, python=python) for name in ("old", "new")]
    how = phases.How(results=tmp_path / "r.json", auto_batch=True, environments=environments)
    assert phases.run(benches, tmp_path, how)[0] == 0
    assert ran == [[("old", 1)], [("old", 2)], [("old", 4)], [("old", 2), ("new", 2)]]
    assert "net: batch size x 4: 151" in capsys.readouterr().err


def test_a_slower_script_is_a_regression_of_its_history(tmp_path, benches, capsys):
    files = []
    for night in range(24):
        files.append(tmp_path / f"{night}.json")
        wobble = 1 + 0.002 * (-1) ** night

        def results(run_id, speed=wobble * (0.9 if night > 17 else 1.0)):
            rates = [[(support.noisy(100 * speed * f), 0)] for f in (0.99, 1, 1.01)]
            return [support.made(tmp_path, benches["one"], rates, run_id=run_id)]

        support.keep(files[-1], results, time=f"2026-10-{night + 1:02}T02:00:00+00:00")
    database = ["--db", str(tmp_path / "history.sqlite")]
    assert main(["history", "import", *map(str, files), *database]) == 0
    assert main(["history", "regressions", *database]) == 2
    found = capsys.readouterr().out
    assert "step  one, time per item milabench:script" in found
    assert "latency_ms x 1.11" in found
    assert "first bad: 2026-10-19" in found
    assert main(["history", "query", "--workload", "one*", "--format", "json", *database]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows[-1]["extra"]["throughput"]["units"] == "items/s"
    assert rows[-1]["extra"]["throughput"]["rate"] == pytest.approx(90, rel=0.01)
