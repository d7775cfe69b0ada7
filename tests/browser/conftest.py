"""A headless Chromium and a report page for it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
# The default tier opens the page of a race; `--all` has every page, theme and size.
DEFAULT = "test_report_in_chromium.py"


def pytest_collection_modifyitems(items):
    """Marks all other files of this folder."""
    for item in items:
        if HERE in item.path.parents and item.path.name != DEFAULT:
            item.add_marker(pytest.mark.nightly)


def made_results(path, *arguments):
    """Writes made-up results."""
    script = ROOT / "benchmarks" / "_made_results.py"
    subprocess.run([sys.executable, script, path, *map(str, arguments)], check=True, timeout=120)
    return path


@pytest.fixture(scope="session")
def report(tmp_path_factory):
    """A page of 200 results after five nights, a slow-down among them."""
    folder = tmp_path_factory.mktemp("report")
    nights = [
        made_results(folder / f"night{n}.json", "--cases", 200, "--night", n) for n in range(4)
    ]
    latest = made_results(folder / "new.json", "--cases", 200, "--night", 4, "--slower")
    page = folder / "report.html"
    command = [sys.executable, "-m", "comparative_benchmark", "report", latest]
    command += [option for night in nights for option in ("--history", night)]
    command += ["--baseline", nights[-1], "-o", page, "--title", "Nightly"]
    subprocess.run(command, check=True, timeout=300, capture_output=True)
    return page


@pytest.fixture(scope="session")
def chromium():
    """Paths of Chromium and its driver."""
    found = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in found:
        pytest.skip("chromium and chromedriver are not installed (Debian: chromium-driver)")
    return found


def _start(chromium, width, height, *, dark=False):
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium[0]
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    # Only files: a page that uses the network fails here.
    options.add_argument("--host-resolver-rules=MAP * ~NOTFOUND")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=chromium[1])
    browser = webdriver.Chrome(options=options, service=service)
    # A window cannot be as narrow as a phone, but the viewport of a page can.
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    if dark:
        browser.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": "dark"}]},
        )
    return browser


@pytest.fixture
def open_browser(chromium):
    """Returns a function that opens a browser of a given size; the test's end closes all."""
    browsers = []

    def start(width=1280, height=900, *, dark=False):
        browsers.append(_start(chromium, width, height, dark=dark))
        return browsers[-1]

    yield start
    for browser in browsers:
        browser.quit()


@pytest.fixture(scope="session")
def shared_browser(chromium):
    """A browser that takes seconds to start, once for all tests."""
    started = _start(chromium, 1280, 900)
    yield started
    started.quit()


@pytest.fixture
def browser(shared_browser, report):
    """A browser on the page as if for the first time; at the end its console must be empty."""
    shared_browser.get(report.as_uri())
    shared_browser.execute_script("localStorage.clear()")
    # Load another page first: a change of only the hash does not reload a page.
    shared_browser.get("about:blank")
    shared_browser.get_log("browser")
    shared_browser.get(report.as_uri())
    yield shared_browser
    assert [entry["message"] for entry in shared_browser.get_log("browser")] == []
