"""Small pages: results of one process, and scripts next to cases of the suite."""

import json
import subprocess
import sys

import bench_support
from report_support import document, metrics, record
from test_report_in_chromium import find, open_case, texts, until

from comparative_benchmark.interop.milabench import config


def test_standings_of_one_process_have_no_side_in_the_file_and_in_a_filter(open_browser, tmp_path):
    scales = {"pt_inductor:eager": 1.0, "jax_xla:xla": 0.5}
    made = [
        record("w1", name, metrics=metrics(scale, seed=seed, processes=1))
        for seed, (name, scale) in enumerate(scales.items())
    ]
    results, page = tmp_path / "r.json", tmp_path / "report.html"
    results.write_text(json.dumps(document(*made)))
    command = [sys.executable, "-m", "comparative_benchmark", "report", results, "-o", page]
    subprocess.run(command, check=True, timeout=100, capture_output=True)
    browser = open_browser()
    browser.get(page.as_uri())

    def standings():
        circles = browser.find_elements("css selector", "#standings circle")
        rows = ["".join(row.split()) for row in texts(browser, ".standings tbody tr")]
        return rows, [circle.get_attribute("class") for circle in circles]

    whole = standings()
    assert "withinoneprocess" in whole[0][0]
    assert whole[1] == ["even"]
    # A filter that matches everything: the script and the file have the same counts.
    find(browser, "#q").send_keys("-")
    until(browser, lambda: "Only results" in find(browser, "#standings").text)
    assert standings() == whole
    open_case(browser, "a.cell[aria-label*='jax_xla']")
    detail = find(browser, "#detail-body").text
    assert detail.count("within one process") >= 2


def test_scripts_show_their_rates_next_to_cases_of_the_suite(shared_browser, tmp_path):
    for name in ("one", "bad"):
        bench_support.write(tmp_path / name)
    one, bad = config.read(bench_support.configured(tmp_path / "c.yaml", one=[], bad=[]))
    scripts, suite, page = tmp_path / "s.json", tmp_path / "r.json", tmp_path / "report.html"
    rates = [[(bench_support.noisy(100 * f), 0)] for f in (0.99, 1, 1.01)]
    bench_support.keep(
        scripts,
        lambda run_id: [
            bench_support.made(tmp_path, one, rates, run_id=run_id),
            bench_support.made(tmp_path, bad, [[([], 1)]], run_id=run_id),
        ],
    )
    suite.write_text(json.dumps(document(record("w1", "pt_inductor:eager"), record("w1"))))
    command = [sys.executable, "-m", "comparative_benchmark", "report", suite, scripts, "-o", page]
    subprocess.run(command, check=True, timeout=100, capture_output=True)
    browser = shared_browser
    browser.get(page.as_uri())
    browser.get_log("browser")
    rows = texts(browser, "#scripts tbody tr")
    assert "100 (98-103) items/s3" in rows[0]
    assert "2.5 → 1.5" in rows[0]
    assert "failed" in rows[1]
    # They do not count in the standings, also in those that the page's script computes.
    standings = texts(browser, "#standings tbody tr")
    find(browser, "#q").send_keys("host-cpu")
    until(browser, lambda: "Only results" in find(browser, "#standings").text)
    assert len(texts(browser, "#standings tbody tr")) == len(standings) == 2
    open_case(browser, "a.cell[aria-label^='one, time']")
    detail = find(browser, "#detail-body").text
    assert "items/s, 95 % interval over replicates" in detail
    assert "time per unit of work, 95 %" in detail
    assert "cbs bench run --fulltrace --config .../c.yaml --select one" in detail
    assert str(tmp_path) not in detail
    assert "Compile time" not in detail
    assert browser.get_log("browser") == []
