"""The page in a real Chromium: what a reader clicks, types and shares."""

import itertools
import re
from statistics import geometric_mean

import pytest

pytest.importorskip("selenium", reason="selenium is not installed")
pytest.importorskip("jinja2", reason="the page needs the extra `report`")

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait

CELLS = "#matrix-table tbody a.cell"


def until(browser, condition, message=""):
    return WebDriverWait(browser, 10, 0.05).until(lambda _: condition(), message)


def find(browser, selector):
    return browser.find_element(By.CSS_SELECTOR, selector)


def texts(browser, selector):
    # In one call, because elements may be replaced between several calls.
    return browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)", selector
    )


def count(browser):
    """Results that pass the filter, results, and workloads."""
    text = find(browser, "#count").text.replace(",", "")
    return tuple(map(int, re.findall(r"\d+", text)))


def choose(browser, name, value):
    Select(find(browser, f"#by-{name}")).select_by_value(value)


def hash_of(browser):
    return browser.execute_script("return location.hash")


def type_filter(browser, text):
    before = find(browser, "#count").text
    find(browser, "#q").send_keys(text)
    until(browser, lambda: find(browser, "#count").text != before)


def open_case(browser, selector=CELLS):
    find(browser, selector).click()
    until(browser, lambda: find(browser, "#detail").get_attribute("open") is not None)
    return find(browser, "#detail")


def test_the_first_screen_answers_before_anything_is_clicked(browser):
    assert "as fast as pt_inductor:eager" in find(browser, ".wins .headline").text
    headings = ["Who wins", "What is broken", "What changed", "Machine suitability"]
    assert texts(browser, ".answers h2") == headings
    assert re.search(r"\d+ slower", find(browser, "#h-changed + .headline").text)
    assert count(browser) == (199, 199, 20)
    # The conditions of made-up results are good; the page only reports that files are days apart.
    assert "days" in find(browser, ".findings").text or "apart" in find(browser, ".findings").text


def test_filters_by_text_and_by_choice_and_clears(browser):
    type_filter(browser, "bert-tiny jax_xla")
    shown, _, workloads = count(browser)
    assert shown == workloads > 0
    assert all("bert-tiny" in text for text in texts(browser, "#matrix-table tbody th"))
    assert "q=bert-tiny" in hash_of(browser)
    choose(browser, "dtype", "bf16")
    narrower = count(browser)
    assert 0 < narrower[0] < shown
    assert set(texts(browser, "#matrix-table td.fact:nth-child(2)")) == {"bf16"}
    find(browser, "#clear").click()
    assert count(browser) == (199, 199, 20)
    assert hash_of(browser) == ""
    assert find(browser, "#q").get_attribute("value") == ""


@pytest.mark.parametrize("name", ["framework", "backend", "dtype", "batch", "tag", "status"])
def test_each_filter_filters(browser, name):
    options = [o.get_attribute("value") for o in Select(find(browser, f"#by-{name}")).options]
    assert options[0] == ""
    numbers = {}
    for value in options[1:4]:
        choose(browser, name, value)
        numbers[value] = count(browser)[0]
        label = Select(find(browser, f"#by-{name}")).first_selected_option.text
        assert f"({numbers[value]})" in label
    assert all(0 < number <= 199 for number in numbers.values())


def test_nothing_found_is_said(browser):
    type_filter(browser, "no such workload")
    assert count(browser)[0] == 0
    assert find(browser, "#nothing").is_displayed()
    assert not find(browser, "#matrix-table").is_displayed()


def colours(browser):
    """Classes of the means: ahead, behind or even."""
    return browser.execute_script(
        """return [...document.querySelectorAll(".standings circle")]
        .map((e) => e.getAttribute("class"))"""
    )


def test_standings_follow_the_filter_and_agree_with_those_of_the_file(browser):
    whole, colours_of_file = texts(browser, ".standings tbody tr"), colours(browser)
    choose(browser, "dtype", "fp32")
    part = texts(browser, ".standings tbody tr")
    assert part != whole
    assert "Only results that match the filters" in find(browser, "#standings").text
    # A filter with every tag matches everything: the script and the file have the same counts.
    choose(browser, "dtype", "")
    find(browser, "#q").send_keys("-")
    until(browser, lambda: "Only results" in find(browser, "#standings").text)
    everything = texts(browser, ".standings tbody tr")
    squeezed = [[re.sub(r"\s+", "", row) for row in rows] for rows in (whole, everything)]
    assert squeezed[0] == squeezed[1]
    assert colours(browser) == colours_of_file != []


def test_headings_sort_in_both_directions(browser):
    def labels():
        return texts(browser, "#matrix-table tbody th")

    first = labels()
    button = "button.sort[data-sort='workload']"
    assert find(browser, f"th:has({button})").get_attribute("aria-sort") == "ascending"
    find(browser, button).click()
    assert find(browser, f"th:has({button})").get_attribute("aria-sort") == "descending"
    assert labels() != first
    assert sorted(labels()) == sorted(first)
    column = "button.sort[data-sort='jax_xla:xla (jax)']"
    find(browser, column).click()
    assert find(browser, f"th:has({column})").get_attribute("aria-sort") == "descending"
    assert len(browser.find_elements(By.CSS_SELECTOR, "th[aria-sort]")) == 1
    cells = texts(browser, "#matrix-table td[data-label='jax_xla:xla (jax)'] .first")
    speeds = [float(m[0]) for cell in cells if (m := re.search(r"[\d.]+(?=\u00d7)", cell))]
    assert len(speeds) > 5
    assert speeds == sorted(speeds, reverse=True)
    # An element with the keyboard focus keeps it.
    assert browser.switch_to.active_element.get_attribute("data-sort") == "jax_xla:xla (jax)"
    find(browser, column).click()
    assert find(browser, f"th:has({column})").get_attribute("aria-sort") == "ascending"


def test_a_case_opens_with_everything_that_is_known_of_it(browser):
    dialog = open_case(browser, f"{CELLS}[aria-label*='jax_xla:xla'][aria-label*='faster']")
    titles = texts(browser, "#detail-body h3")
    for title in ("Verdict", "Since the baseline results", "Samples", "Trend", "Peak memory"):
        assert title in titles
    for title in ("Compile time and phases", "Error against the truth", "Roofline"):
        assert title in titles
    # Dots of three processes of the case and of three of its baseline.
    assert len(browser.find_elements(By.CSS_SELECTOR, "#detail svg .dot.own:not(.big)")) == 150
    assert len(browser.find_elements(By.CSS_SELECTOR, "#detail svg .dot.other:not(.big)")) == 150
    assert len(browser.find_elements(By.CSS_SELECTOR, "#detail svg polyline.trend")) == 1
    assert "cold, empty caches" in dialog.text
    assert "98 % interval" in dialog.text
    assert "cbs run --backend jax_xla:xla -name models/" in dialog.text


def test_a_broken_case_says_what_happened(browser):
    find(browser, ".chip.st-wrong_output").click()
    assert "status=wrong_output" in hash_of(browser)
    assert count(browser)[0] > 0
    dialog = open_case(browser, f"{CELLS}.st-wrong_output")
    assert "wrong output in outputs" in dialog.text
    assert "relative RMSE 0.021" in dialog.text
    assert "log file" in dialog.text


def test_a_link_shows_the_same_elsewhere(browser, open_browser):
    type_filter(browser, "bert-base")
    choose(browser, "dtype", "fp32")
    find(browser, "button.sort[data-sort='jax_xla:xla (jax)']").click()
    open_case(browser)
    seen = (count(browser), texts(browser, "#matrix-table tbody th"), texts(browser, "#detail h2"))
    browser.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite"]})
    find(browser, "#copy").click()
    until(browser, lambda: find(browser, "#copy").text != "Copy link")
    address = browser.execute_script("return document.getElementById('address').value")
    assert "case=" in address
    other = open_browser()
    other.get(address)
    until(other, lambda: find(other, "#detail").get_attribute("open") is not None)
    again = (count(other), texts(other, "#matrix-table tbody th"), texts(other, "#detail h2"))
    assert again == seen
    other.refresh()
    until(other, lambda: find(other, "#detail").get_attribute("open") is not None)
    assert count(other) == seen[0]
    assert other.get_log("browser") == []


def test_back_leads_back(browser):
    choose(browser, "dtype", "fp32")
    open_case(browser)
    browser.back()
    until(browser, lambda: find(browser, "#detail").get_attribute("open") is None)
    assert "dtype=fp32" in hash_of(browser)
    browser.back()
    until(browser, lambda: count(browser) == (199, 199, 20))


def test_a_link_to_what_the_report_does_not_hold_reports_it(browser, report):
    browser.get(f"{report.as_uri()}#case=0123456789ab&dtype=int3")
    browser.refresh()
    until(browser, lambda: find(browser, "#detail").get_attribute("open") is not None)
    assert "No such case" in find(browser, "#detail").text
    assert count(browser)[0] == 0


def test_the_keyboard_does_it_all(browser):
    body = find(browser, "body")
    body.send_keys("/")
    assert browser.switch_to.active_element.get_attribute("id") == "q"
    type_filter(browser, "gpt2")
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    until(browser, lambda: count(browser) == (199, 199, 20))
    browser.execute_script("document.querySelector(arguments[0]).focus()", CELLS)
    first = browser.switch_to.active_element.get_attribute("data-id")
    browser.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    second = browser.switch_to.active_element.get_attribute("data-id")
    assert second != first
    browser.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    third = browser.switch_to.active_element.get_attribute("data-id")
    assert third != second
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    until(browser, lambda: find(browser, "#detail").get_attribute("open") is not None)
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    until(browser, lambda: find(browser, "#detail").get_attribute("open") is None)
    until(browser, lambda: browser.switch_to.active_element.get_attribute("data-id") == third)
    # The address follows the event, which comes after the dialogue has closed.
    until(browser, lambda: "case=" not in hash_of(browser))


def test_a_screen_reader_has_landmarks_names_and_counts(browser):
    for selector in ("main", "header", "[role=search]", "#matrix-table caption", "h1"):
        assert browser.find_elements(By.CSS_SELECTOR, selector)
    assert find(browser, "#count").get_attribute("role") == "status"
    nameless = browser.execute_script(
        """return [...document.querySelectorAll("button, a, input, select, svg[role=img]")]
        .filter((e) => !e.closest("[hidden]"))
        .filter((e) => !(e.textContent.trim() || e.ariaLabel || e.labels?.[0]?.textContent.trim()))
        .map((e) => e.outerHTML)"""
    )
    assert nameless == []
    levels = [
        int(level[1])
        for level in browser.execute_script(
            "return [...document.querySelectorAll('main h1, main h2, main h3')].map(e => e.tagName)"
        )
    ]
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def contrast(browser, selector):
    """Contrast of the first matching element's text with its background, as WCAG defines it."""
    return browser.execute_script(
        """const e = document.querySelector(arguments[0]);
        const rgb = (c) => c.match(/[\\d.]+/g).map(Number);
        const light = (c) => rgb(c).slice(0, 3).map((v) => v / 255)
          .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
          .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
        let ground = e;
        const clear = (c) => (rgb(c)[3] ?? 1) === 0;
        while (ground.parentElement && clear(getComputedStyle(ground).backgroundColor))
          ground = ground.parentElement;
        const a = light(getComputedStyle(e).color);
        const b = light(getComputedStyle(ground).backgroundColor);
        return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);""",
        selector,
    )


@pytest.mark.parametrize("dark", [False, True])
def test_texts_can_be_read_in_either_theme(open_browser, report, dark):
    browser = open_browser(dark=dark)
    browser.get(report.as_uri())
    background = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    channels = [int(value) for value in re.findall(r"\d+", background)[:3]]
    assert (max(channels) < 80) is dark
    shades = [f"a.cell.{side}{n}" for side in "fs" for n in range(1, 5)]
    seen = [s for s in shades if browser.find_elements(By.CSS_SELECTOR, s)]
    assert len(seen) >= 4
    for selector in ("h1", ".quiet", ".headline", "a.cell.v-baseline", *seen):
        assert contrast(browser, selector) >= 4.5, selector
    assert browser.get_log("browser") == []


def test_the_theme_can_be_turned_and_stays(browser):
    before = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    find(browser, "#theme").click()
    assert find(browser, "#theme").get_attribute("aria-pressed") == "true"
    after = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert after != before
    browser.refresh()
    assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") == after


def test_a_phone_shows_it_all_without_scrolling_sideways(open_browser, report):
    browser = open_browser(360, 740)
    browser.get(report.as_uri())
    width = "return [document.documentElement.scrollWidth, innerWidth]"
    assert browser.execute_script(width) == [360, 360]
    type_filter(browser, "bert-base")
    browser.execute_script("document.querySelector(arguments[0]).scrollIntoView()", CELLS)
    open_case(browser)
    assert browser.execute_script(width) == [360, 360]
    wide = browser.execute_script(
        """return [...document.querySelectorAll("#detail-body *")]
        .filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest("pre"))
        .map((e) => e.outerHTML.slice(0, 80))"""
    )
    assert wide == []
    assert browser.get_log("browser") == []


def test_a_switch_shows_another_metric_in_standings_and_matrix(browser):
    switches = browser.find_elements(By.CSS_SELECTOR, "select.metric")
    names = [option.text for option in Select(switches[0]).options]
    assert names[:5] == [
        "speed-up",
        "throughput",
        "cold compile time",
        "warm compile time",
        "runs until compilation pays off",
    ]
    Select(switches[0]).select_by_visible_text("warm compile time")
    assert Select(switches[1]).first_selected_option.text == "warm compile time"
    assert "metric=warm" in hash_of(browser)
    assert "warm compile time" in texts(browser, "#standings .quiet")[0]
    cells = texts(browser, f"{CELLS} .first")
    assert any(re.fullmatch(r"[\d.,]+ m?s", cell) for cell in cells)
    assert not browser.find_elements(By.CSS_SELECTOR, "a.cell.f1, a.cell.s1, a.cell.v-faster")
    find(browser, "button.sort[data-sort='jax_xla:xla (jax)']").click()
    browser.refresh()
    assert Select(find(browser, "select.metric")).first_selected_option.text == "warm compile time"
    Select(browser.find_elements(By.CSS_SELECTOR, "select.metric")[1]).select_by_visible_text(
        "speed-up"
    )
    assert "metric" not in hash_of(browser)
    assert browser.find_elements(By.CSS_SELECTOR, "a.cell.v-faster")


def test_ratios_of_a_metric_are_those_of_its_numbers(browser):
    browser.execute_script("location.hash = 'metric=memory'")
    until(browser, lambda: "memory" in texts(browser, "#standings .quiet")[0])
    rows = browser.execute_script(
        """return [...document.querySelectorAll("#standings tbody tr")]
        .map((row) => [...row.cells].map((cell) => cell.textContent))"""
    )
    assert [row[4].split()[0] for row in rows].count("1") == 1
    data = browser.execute_script("return JSON.parse(document.getElementById('data').textContent)")
    cases, texts_ = data["cases"], data["texts"]
    runners = [data["runners"][runner] for runner in cases["runner"]]
    names = [f"{runner['competitor']} {runner['framework']}" for runner in runners]
    good = [texts_[status] in ("ok", "agreed") for status in cases["status"]]
    memory = {
        (cases["workload"][i], names[i]): cases["host_mb"][i]
        for i in range(data["count"])
        if good[i] and cases["host_mb"][i]
    }
    baseline = f"{data['baseline']} pytorch"
    for row in rows:
        pairs = [
            own / memory[workload, baseline]
            for (workload, name), own in memory.items()
            if name == row[0] and (workload, baseline) in memory
        ]
        if row[0] != baseline:
            assert row[4] == f"{geometric_mean(pairs):.2f}\u00d7 over {len(pairs)}"


def test_a_case_says_when_its_compilation_pays(browser):
    browser.execute_script("location.hash = 'metric=pays'")
    until(browser, lambda: "compilation pays" in texts(browser, "#standings .quiet")[0])
    cell = next(
        cell
        for cell in browser.find_elements(By.CSS_SELECTOR, CELLS)
        if cell.text.split("\n")[0].endswith("runs")
    )
    runs = cell.text.split("\n")[0]
    cell.click()
    until(browser, lambda: find(browser, "#detail").get_attribute("open") is not None)
    assert f"after {runs}, compared with pt_inductor:eager" in find(browser, "#detail-body").text


def test_a_model_has_plots_over_its_batch_sizes(browser):
    model = Select(find(browser, "#model"))
    assert any("-Nx64xi32" in option.text for option in model.options)
    figures = "#batches .panels svg[role=group]"
    labels = browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((e) => e.ariaLabel)", figures
    )
    assert [label.split(": ")[1] for label in labels] == [
        "latency, ms by batch size",
        "samples per second by batch size",
    ]
    assert re.match(r"Use .+ batch", find(browser, "#batches .choice").text)
    points = len(texts(browser, "#batches a.point"))
    find(browser, "#batches button.series").click()
    until(browser, lambda: len(texts(browser, "#batches a.point")) < points)
    assert "off=" in hash_of(browser)
    model.select_by_index(1)
    assert "model=" in hash_of(browser)
    point = find(browser, "#batches a.point")
    browser.execute_script("arguments[0].focus()", point)
    assert "batch" in find(browser, "#tip").text


def test_paper_has_every_row(browser):
    shown = "return document.querySelectorAll('#matrix-table tbody tr').length"
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert browser.execute_script(shown) == 20
