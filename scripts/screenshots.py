"""Takes the report screenshots in docs/screenshots: desktop, phone, dark, one case, a sweep.

They show made-up results, which fill every part of the page; the title contains "made-up". With
`--site`, makes screenshots of the documentation that `./scripts/site.sh` built: home, a tutorial
and the API, light and dark, on one sheet for wide windows and one for phones.

    python scripts/screenshots.py [--output docs/screenshots] [--site build/site]
"""

import argparse
import functools
import http.server
import io
import itertools
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

ROOT = Path(__file__).parents[1]
_NIGHTS, _CASES = 12, 240
_SITE_PAGES = ("", "getting-started/own-model/", "guides/python-api/")
_CASE = "a.cell[aria-label*='jax_xla:xla'][aria-label*='faster']"


def main() -> None:
    """Builds the page and takes the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "screenshots")
    parser.add_argument("--site", type=Path, help="directory with the built documentation")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    if options.site is not None:
        _site_sheets(options.site, options.output)
        return
    with tempfile.TemporaryDirectory(prefix="cbs-screenshots-") as folder:
        address, sweep = (make(Path(folder)).as_uri() for make in (_report, _sweep))
        for name, width, height, dark, steps in (
            ("desktop", 1280, 900, False, ()),
            ("dark", 1280, 900, True, ("matrix",)),
            ("phone", 360, 1300, False, ()),
            ("case", 1280, 1300, False, ("case",)),
            ("phone-case", 360, 1300, True, ("case",)),
            ("matrix", 1280, 900, False, ("matrix",)),
            ("sweeps", 1000, 1180, False, ("sweeps",)),
        ):
            browser = _browser(width, height, dark=dark)
            try:
                browser.get(sweep if "sweeps" in steps else address)
                for step in steps:
                    _go(browser, step)
                browser.save_screenshot(str(options.output / f"report-{name}.png"))
            finally:
                browser.quit()
            _shrink(options.output / f"report-{name}.png")


def _site_sheets(site: Path, output: Path) -> None:
    from PIL import Image

    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=site)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name, width, height in (("wide", 1280, 900), ("phone", 390, 844)):
        pictures = []
        for page, dark in itertools.product(_SITE_PAGES, (False, True)):
            browser = _browser(width, height, dark=dark)
            try:
                browser.get(f"http://127.0.0.1:{server.server_port}/{page}")
                pictures.append(Image.open(io.BytesIO(browser.get_screenshot_as_png())))
            finally:
                browser.quit()
        columns = 2 if name == "wide" else len(pictures)
        rows = len(pictures) // columns
        sheet = Image.new("RGB", (columns * width, rows * height))
        for place, picture in enumerate(pictures):
            sheet.paste(picture, (place % columns * width, place // columns * height))
        sheet.resize((sheet.width // 2, sheet.height // 2)).save(output / f"site-{name}.png")
        _shrink(output / f"site-{name}.png")
    server.shutdown()


def _report(folder: Path) -> Path:
    script = ROOT / "benchmarks" / "_made_results.py"
    nights = [folder / f"night{number}.json" for number in range(_NIGHTS)]
    for number, path in enumerate(nights):
        last = ["--slower"] if number == _NIGHTS - 1 else []
        arguments = ["--cases", str(_CASES), "--night", str(number), *last]
        subprocess.run([sys.executable, script, path, *arguments], check=True)
    page = folder / "report.html"
    command: list[Any] = [sys.executable, "-P", "-m", "comparative_benchmark", "report", nights[-1]]
    command += [option for night in nights[:-1] for option in ("--history", night)]
    command += ["--baseline", nights[-2], "-o", page]
    command += ["--title", "Nightly report (made-up figures)"]
    subprocess.run(command, check=True)
    return page


def _sweep(folder: Path) -> Path:
    made, page = folder / "sweep.json", folder / "sweep.html"
    script = ROOT / "benchmarks" / "_made_operators.py"
    subprocess.run([sys.executable, script, made, "--powers", "4-9"], check=True)
    command = [sys.executable, "-P", "-m", "comparative_benchmark", "report", str(made)]
    options = ["-o", str(page), "--title", "Sweep (made-up figures)"]
    subprocess.run([*command, *options], check=True)
    return page


def _browser(width: int, height: int, *, dark: bool) -> webdriver.Chrome:
    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(flag)
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    browser = webdriver.Chrome(options=options, service=service)
    view = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", view)
    theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [theme]})
    return browser


def _go(browser: webdriver.Chrome, step: str) -> None:
    if step == "sweeps":
        browser.execute_script("location.hash = 'op=linear,+fp32'")
    if step in ("matrix", "sweeps"):
        browser.execute_script("document.getElementById(arguments[0]).scrollIntoView()", step)
        return
    link = browser.find_element(By.CSS_SELECTOR, _CASE)
    browser.execute_script("arguments[0].click()", link)
    dialog = browser.find_element(By.ID, "detail")
    WebDriverWait(browser, 10).until(lambda _: dialog.get_attribute("open") is not None)


def _shrink(path: Path) -> None:
    """Writes a PNG with a palette, a third of the size."""
    from PIL import Image

    with Image.open(path) as image:
        image.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main()
