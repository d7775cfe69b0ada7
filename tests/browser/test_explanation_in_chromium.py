"""The reason why a case is slower, next to the case, in a real browser."""

import subprocess
import sys

import pytest
from report_support import record, run
from results_support import completed
from test_report_in_chromium import find, open_case, texts

from comparative_benchmark.backends.operator_profile import Operator, OperatorProfile, write
from comparative_benchmark.results import published
from comparative_benchmark.results.results_file import encode

EAGER, XLA = "pt_inductor:eager", "jax_xla:xla"
SLOW = OperatorProfile(
    stack="PyTorch",
    iterations=3,
    operators=(
        Operator(name="aten::addmm 32x512x128", us=900.0, flops=9e5, bytes=1e3),
        Operator(name="<img src=x onerror=document.title='owned'>", us=600.0),
    ),
    breaks=("2 x <b>print</b>",),
)
FAST = OperatorProfile(
    stack="JAX",
    iterations=3,
    operators=(Operator(name="fusion.1", does="dot, add", us=700.0),),
    fusions=("2 generated fusions",),
)


@pytest.fixture
def page(tmp_path):
    found = completed(
        {
            "runs": [run()],
            "benchmarks": [record("w", EAGER, scale=3.0), record("w", XLA, scale=1.0)],
        }
    )
    results = tmp_path / "r.json"
    results.write_bytes(encode(found))
    for result, profile in zip(found.benchmarks, (SLOW, FAST), strict=True):
        folder = published.folder_for(results, result)
        folder.mkdir(parents=True)
        write(profile, folder)
    page = tmp_path / "report.html"
    command = [sys.executable, "-m", "comparative_benchmark", "report", results, "-o", page]
    subprocess.run(command, check=True, timeout=100, capture_output=True)
    return page


def test_the_slower_case_says_where_its_time_goes(open_browser, page):
    browser = open_browser(width=390)
    browser.get(page.as_uri())
    title = browser.title
    open_case(browser, "a.cell[aria-label*='eager']")
    rows = texts(browser, "table.explained tbody tr")
    assert "matrix products0.20.90.7" in rows
    assert any(row.startswith("between operators") for row in rows)
    detail = find(browser, "#detail-body").text
    assert f"Why slower than {XLA}" in detail
    # The name of a program is text, whatever it contains.
    assert "2 x <b>print</b>" in detail
    assert "2 generated fusions" in detail
    assert browser.title == title
    widths = "return [document.documentElement.scrollWidth, window.innerWidth]"
    assert len(set(browser.execute_script(widths))) == 1
    assert browser.get_log("browser") == []


def test_the_fastest_has_nothing_to_explain(shared_browser, page):
    shared_browser.get(page.as_uri())
    open_case(shared_browser, "a.cell[aria-label*='jax_xla']")
    assert not texts(shared_browser, "table.explained tbody tr")
