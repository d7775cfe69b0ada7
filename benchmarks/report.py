"""Measures the build time, size and response times of a report on 5,000 results.

The same samples go to the nearest peer, `pytest-benchmark compare --csv`; the two alternate in
shuffled order. They do different things. The peer reads finished statistics and writes a table and
a CSV file. `cbs report` computes intervals and ratios of every case from the raw samples of its
processes, and writes a page that filters, sorts and draws them. So the peer's time is only a lower
limit for reading and printing this number of cases.

Then the script opens the page in headless Chromium, if installed. It measures the time from the
request until the page is ready, and from a change of the filter until the matrix is redrawn.

    python benchmarks/report.py [--cases 5000] [--rounds 3] [--operators] [--quick]
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import _made_operators
from _made_results import document
from _timing import interleave, print_goal, print_table, ratio

MOST_BUILD_S, MOST_BYTES, MOST_INTERACTION_S = 10.0, 5e6, 1.0
_FILTERS = ("bert", "jax_xla slower", "resnet50 fp32", "wrong_output")
_OPERATOR_FILTERS = ("matmul", "jax_xla slower", "linear fp32 int8", "wrong_output")
# Measures from the change of the filter until the matching results are drawn.
_FILTER_SCRIPT = """
const [text, done] = arguments;
const field = document.getElementById("q"), count = document.getElementById("count");
const before = count.textContent, start = performance.now();
new MutationObserver((_, observer) => {
  observer.disconnect();
  requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
}).observe(count, { childList: true, characterData: true, subtree: true });
field.value = text;
field.dispatchEvent(new Event("input", { bubbles: true }));
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--operators", action="store_true", help="use three operators over shapes, and recipes"
    )
    parser.add_argument("--quick", action="store_true", help="try the script with 300 results")
    options = parser.parse_args()
    cases, rounds = (300, 1) if options.quick else (options.cases, options.rounds)
    with tempfile.TemporaryDirectory(prefix="cbs-report-benchmark-") as folder:
        _measure(Path(folder), cases, rounds, operators=options.operators)


def _measure(folder: Path, cases: int, rounds: int, *, operators: bool) -> None:
    new, old = document(cases, night=1, slower=True), document(cases)
    if operators:
        new, old = (_operators(cases, night=night) for night in (1, 0))
        cases = len(new["benchmarks"])
    files = {name: folder / f"{name}.json" for name in ("new", "old", "peer")}
    for name, content in (("new", new), ("old", old), ("peer", _as_pytest_benchmark(new))):
        files[name].write_text(json.dumps(content), encoding="utf-8")
    page = folder / "report.html"
    cbs = Path(sys.executable).with_name("cbs")
    report = [str(cbs), "report", str(files["new"]), "-o", str(page)]
    with_baseline = [*report[:-1], str(folder / "changes.html"), "--baseline", str(files["old"])]
    contestants: dict[str, Callable[[], object]] = {
        "cbs report": _process(report),
        "cbs report --baseline": _process(with_baseline),
    }
    peer = Path(sys.executable).with_name("pytest-benchmark")
    if peer.exists():
        compare = [str(peer), "compare", f"--csv={folder / 'peer.csv'}", str(files["peer"])]
        contestants["pytest-benchmark compare --csv"] = _process(compare)
    else:
        print("no peer: pytest-benchmark is not installed")
    times = interleave(contestants, rounds=rounds, iterations=1)
    print_table(
        ["process", "median s", "min s", "max s", "x cbs report"],
        [
            [
                name,
                f"{statistics.median(values):.2f}",
                f"{min(values):.2f}",
                f"{max(values):.2f}",
                str(ratio(values, times["cbs report"])),
            ]
            for name, values in times.items()
        ],
    )
    size = page.stat().st_size
    print(f"{cases} results, {files['new'].stat().st_size / 1e6:.1f} MB of JSON")
    print(f"page: {size / 1e6:.2f} MB; with a baseline {_size(folder / 'changes.html')}")
    if (csv := folder / "peer.csv").exists():
        print(f"the peer's CSV: {_size(csv)}, statistics without intervals, samples or verdicts")
    built = statistics.median(times["cbs report"])
    print_goal(f"built in < {MOST_BUILD_S:g} s", met=built < MOST_BUILD_S, found=f"{built:.1f} s")
    print_goal(f"< {MOST_BYTES / 1e6:g} MB", met=size < MOST_BYTES, found=f"{size / 1e6:.1f} MB")
    _open(folder / "changes.html", rounds, _OPERATOR_FILTERS if operators else _FILTERS)


def _operators(cases: int, *, night: int) -> dict[str, Any]:
    """Returns results for the smallest number of shapes that gives at least `cases` cases."""
    highest = 4
    while True:
        made = _made_operators.document(range(4, highest), night=night, slower=night > 0)
        if len(made["benchmarks"]) >= cases:
            return made
        highest += 1


def _open(page: Path, rounds: int, filters: tuple[str, ...]) -> None:
    found = [shutil.which(name) for name in ("chromium", "chromedriver")]
    try:
        from selenium import webdriver
    except ModuleNotFoundError:
        found = [None]
    if None in found:
        print("not opened: selenium, chromium or chromedriver is not installed")
        return
    options = webdriver.ChromeOptions()
    options.binary_location = str(found[0])
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    service = webdriver.ChromeService(executable_path=found[1])
    ready, filtered = [], []
    browser = webdriver.Chrome(options=options, service=service)
    try:
        browser.set_script_timeout(60)
        for _ in range(rounds):
            browser.get(page.as_uri())
            ready.append(
                int(browser.execute_script("return document.documentElement.dataset.ready")) / 1e3
            )
            filtered += [
                browser.execute_async_script(_FILTER_SCRIPT, text) / 1e3 for text in (*filters, "")
            ]
    finally:
        browser.quit()
    print(
        f"ready after {_spread(ready)}; a filter takes {_spread(filtered)}, including a wait of "
        "0.08 s"
    )
    slowest = max(*ready, *filtered)
    print_goal(
        f"first interaction < {MOST_INTERACTION_S:g} s",
        met=slowest < MOST_INTERACTION_S,
        found=f"{slowest:.2f} s",
    )


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} s ({min(values):.2f} to {max(values):.2f})"


def _size(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.2f} MB"


def _process(command: list[str]) -> Callable[[], object]:
    return lambda: subprocess.run(command, check=True, capture_output=True)


def _as_pytest_benchmark(made: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the same samples in the file format of pytest-benchmark."""
    benchmarks = []
    for record in made["benchmarks"]:
        metrics = next(iter(record["metrics"].values()))
        samples = [value / 1e3 for value in metrics.get("latencies_ms", ())]
        if not samples:
            continue
        definition = record["definition"]
        quartiles = statistics.quantiles(samples, n=4)
        name = f"{definition['benchmark_name']}[{definition['backend']}:{definition['compiler']}]"
        benchmarks.append(
            {
                "group": definition["workload"]["label"],
                "name": name,
                "fullname": name,
                "params": None,
                "param": None,
                "extra_info": {},
                "options": {},
                "stats": {
                    "min": min(samples),
                    "max": max(samples),
                    "mean": statistics.fmean(samples),
                    "stddev": statistics.stdev(samples),
                    "rounds": len(samples),
                    "median": statistics.median(samples),
                    "iqr": quartiles[2] - quartiles[0],
                    "q1": quartiles[0],
                    "q3": quartiles[2],
                    "iqr_outliers": 0,
                    "stddev_outliers": 0,
                    "outliers": "0;0",
                    "ld15iqr": min(samples),
                    "hd15iqr": max(samples),
                    "ops": 1 / statistics.fmean(samples),
                    "total": sum(samples),
                    "iterations": 1,
                },
            }
        )
    return {
        "machine_info": {},
        "commit_info": {},
        "benchmarks": benchmarks,
        "datetime": made["trigger"]["timestamp"],
        "version": "5.3.1",
    }


if __name__ == "__main__":
    main()
