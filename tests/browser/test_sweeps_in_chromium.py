"""Operators over shapes, and recipes by their signal, in a real Chromium."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("selenium", reason="selenium is not installed")
pytest.importorskip("jinja2", reason="the page needs the extra `report`")

from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select
from test_report_in_chromium import contrast, find, hash_of, texts, type_filter, until

POINTS = "#sweeps a.point"
XLA = "button.series[data-name='jax_xla:xla (jax)']"


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """A page of three operators in two types over up to 35 shapes each, and of five recipes."""
    folder = tmp_path_factory.mktemp("sweep")
    made, page = folder / "made.json", folder / "sweep.html"
    script = Path(__file__).parents[2] / "benchmarks" / "_made_operators.py"
    subprocess.run([sys.executable, script, made, "--powers", "4-8"], check=True, timeout=120)
    command = [sys.executable, "-m", "comparative_benchmark", "report", made, "-o", page]
    subprocess.run(command, check=True, timeout=300, capture_output=True)
    return page


@pytest.fixture
def browser(shared_browser, sweep):
    """A browser on the page as if for the first time; at the end its console must be empty."""
    shared_browser.get("about:blank")
    shared_browser.get_log("browser")
    shared_browser.get(sweep.as_uri())
    yield shared_browser
    assert [entry["message"] for entry in shared_browser.get_log("browser")] == []


def attributes(browser, selector, name):
    return browser.execute_script(
        """return [...document.querySelectorAll(arguments[0])]
        .map((e) => e.getAttribute(arguments[1]))""",
        selector,
        name,
    )


def choose(browser, name, text):
    Select(find(browser, f"#{name}")).select_by_visible_text(text)


def test_every_operator_has_a_plot_and_hollow_marks_have_no_verdict(browser):
    find(browser, "#all-panels").click()
    titles = texts(browser, "#sweeps .panel h3")
    assert len(titles) == 6
    assert titles[0] == "matmul, fp32 35 shapes"
    # Four competitors on 35 shapes, and eager's recipes on linear's shapes.
    choose(browser, "op", "linear, fp32")
    assert len(texts(browser, POINTS)) == 35 * 8
    hollow = {label: "hollow" in of for label, of in points_of(browser)}
    unclear = {label: not re.search("(faster|slower),", label) for label in hollow}
    assert hollow == unclear
    assert {True, False} == set(hollow.values())
    assert texts(browser, "#sweeps .axis")[0] == "m \u00d7 k \u00d7 n (log)"


def test_recipes_are_not_in_filtered_standings_either(browser):
    rows = [re.sub(r"\s+", "", row) for row in texts(browser, ".standings tbody tr")]
    shades = attributes(browser, ".standings circle", "class")
    # A text that every case contains.
    find(browser, "#q").send_keys("-")
    until(browser, lambda: "Only results" in find(browser, "#standings").text)
    filtered = texts(browser, ".standings tbody tr")
    assert [re.sub(r"\s+", "", row) for row in filtered] == rows
    assert attributes(browser, ".standings circle", "class") == shades


def points_of(browser):
    labels = attributes(browser, POINTS, "aria-label")
    return zip(labels, attributes(browser, POINTS, "class"), strict=True)


def test_wrong_and_unsupported_shapes_are_listed_and_not_drawn(browser):
    choose(browser, "op", "matmul, fp16")
    assert not [name for name in attributes(browser, POINTS, "aria-label") if "iree" in name]
    assert find(browser, "#sweeps .left-out summary").text == "Not drawn: 35 results"
    find(browser, "#sweeps .left-out summary").click()
    listed = find(browser, "#sweeps .left-out li").text
    assert listed.startswith("iree:llvm-cpu (jax) wrong output: output 0: relative RMSE")
    assert listed.endswith("and 32 more")
    find(browser, "#sweeps .left-out a").click()
    assert "wrong output" in find(browser, "#detail-body").text


def test_a_competitor_is_hidden_by_the_keyboard_and_stays_so_in_a_link(browser):
    def shown():
        return [name for name in attributes(browser, POINTS, "aria-label") if "jax_xla" in name]

    assert shown()
    browser.execute_script("document.querySelector(arguments[0]).focus()", XLA)
    browser.switch_to.active_element.send_keys(Keys.SPACE)
    assert not shown()
    assert browser.switch_to.active_element.get_attribute("aria-pressed") == "false"
    assert "off=jax_xla" in hash_of(browser)
    browser.refresh()
    assert not shown()
    find(browser, XLA).click()
    assert shown()
    assert hash_of(browser) == ""


def test_keys_walk_over_marks_which_say_everything_and_open_their_case(browser):
    choose(browser, "op", "matmul, fp32")
    assert attributes(browser, POINTS, "tabindex").count("0") == 1
    browser.execute_script(
        "document.querySelector(arguments[0]).focus()", f"{POINTS}[tabindex='0']"
    )
    tip = find(browser, "#tip")
    first = tip.text
    assert re.search(r"^matmul-fp32-16x16x16\n.+\n.+\u00d7 \(98 %: .+\u2013.+\)\n.+ ms", first)
    browser.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    second = tip.text
    assert second.split("\n")[:2] == ["matmul-fp32-16x16x32", first.split("\n")[1]]
    browser.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    third = tip.text
    assert third.split("\n")[0] == "matmul-fp32-16x16x32"
    assert third.split("\n")[1] != second.split("\n")[1]
    assert attributes(browser, POINTS, "tabindex").count("0") == 1
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    until(browser, lambda: find(browser, "#detail").get_attribute("open") is not None)
    assert texts(browser, "#detail h2") == ["matmul-fp32-16x16x32"]
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    until(browser, lambda: "point" in browser.switch_to.active_element.get_attribute("class"))


def test_filters_choose_panels_and_leave_the_rest_faint(browser):
    type_filter(browser, "softmax fp32 slower")
    assert texts(browser, "#sweeps .panel h3") == ["softmax, fp32 15 shapes"]
    for label, of in points_of(browser):
        assert ("faint" in of) is ("slower," not in label)
    assert texts(browser, "#bits .point") == []
    assert find(browser, "#bits .none").is_displayed()


def test_recipes_stand_by_speed_and_signal_with_the_frontier_of_their_stack(browser):
    assert Select(find(browser, "#shape")).first_selected_option.text == "means over 35 shapes"
    assert len(texts(browser, "#bits .point")) == 5
    choose(browser, "shape", "linear-fp32-256x256x256")
    rows = {row.split("\t")[0] + row.split("\t")[1]: row for row in table(browser)}
    eager = rows["int8dq frontierpt_inductor:eager (pytorch)"]
    assert re.search(r"1\.\d+\u00d7 1\.\d+\u2013\d\.\d+, faster\t38\.6 dB\t", eager)
    assert eager.endswith("\t26 % of the bytes (68.2 kB)\t1 of 1 layers")
    # 4 bits are faster still, and lose more; those that are slower and lose more are behind.
    assert "int4wo-64 frontierpt_inductor:eager (pytorch)" in rows
    assert "intx-4-32pt_inductor:eager (pytorch)" in rows
    lines = attributes(browser, "#bits polyline.line", "points")
    # Three of eager's four on one line, OpenVINO's only one on another.
    assert sorted(len(line.split()) for line in lines) == [1, 3]
    numbers = [place.split(",") for line in lines for place in line.split()]
    assert all(float(x) > 0 and float(y) > 0 for x, y in numbers)
    assert "shape=linear" in hash_of(browser)
    says = attributes(browser, "#bits a.point", "aria-label")
    assert any("26 % of the bytes" in text and text.endswith("1 of 1 layers; ok") for text in says)


def table(browser):
    return browser.execute_script(
        """return [...document.querySelectorAll("#bits .trades tbody tr")]
        .map((row) => [...row.cells].map((cell) => cell.textContent).join("\\t"))"""
    )


def test_a_phone_in_the_dark_shows_it_without_scrolling_sideways(open_browser, sweep):
    browser = open_browser(360, 740, dark=True)
    browser.get(sweep.as_uri())
    width = "return [document.documentElement.scrollWidth, innerWidth]"
    assert browser.execute_script(width) == [360, 360]
    assert len(texts(browser, "#sweeps .panel")) == 4
    browser.execute_script("document.querySelectorAll(arguments[0])[9].focus()", POINTS)
    box = find(browser, "#tip").rect
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 360
    for selector in ("#tip span", "button.series small", ".trades td", "#sweeps h3 small"):
        assert contrast(browser, selector) >= 4.5, selector
    assert browser.get_log("browser") == []


def test_a_page_without_operators_has_no_empty_sections(shared_browser, report):
    shared_browser.get(report.as_uri())
    assert texts(shared_browser, "#sweeps, #bits") == []
