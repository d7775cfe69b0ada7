"""The page's own script says of one process what the file says: it names nobody."""

import json
import subprocess
import sys

from report_support import document, metrics, record
from test_report_in_chromium import find, open_case, texts, until


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
    # A filter that lets everything through: the script counts as the file does.
    find(browser, "#q").send_keys("-")
    until(browser, lambda: "Only what" in find(browser, "#standings").text)
    assert standings() == whole
    open_case(browser, "a.cell[aria-label*='jax_xla']")
    detail = find(browser, "#detail-body").text
    assert detail.count("within one process") >= 2
