"""The documentation site: built strictly, complete, and with nothing from elsewhere."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from comparative_benchmark.backends.api import backends
from comparative_benchmark.cli.command import COMMANDS
from comparative_benchmark.errors import EXIT_CODES
from comparative_benchmark.results.results_file import schema

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ROOT / ".docs.venv"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as the workflow publishes it."""
    if not PACKAGES.is_dir():
        pytest.skip(f"{PACKAGES.name} is not there: ./scripts/test.sh makes it")
    target = tmp_path_factory.mktemp("site")
    given = os.environ.get("PYTHONPATH", "")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", target],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": f"{PACKAGES}{os.pathsep}{given}",
            "NO_MKDOCS_2_WARNING": "true",
            "GITHUB_REPOSITORY": "owner/repository",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return target


def test_the_pages_ask_nobody_else(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        text = page.read_text(encoding="utf-8")
        asked = re.findall(r'<(?:script|img|iframe)[^>]* src="?(?:https?:)?//[^">]+', text)
        asked += re.findall(r'<link[^>]*rel="?(?:stylesheet|preconnect|icon)[^>]*href="?http', text)
        assert asked == [], page
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//", style.read_text(encoding="utf-8"))


def _text(site, page):
    return (site / page / "index.html").read_text(encoding="utf-8")


def test_the_reference_has_all_that_the_code_has(site):
    commands = _text(site, "reference/commands")
    assert [c.name for c in COMMANDS if f"<h2 id=cbs-{c.name}" not in _bare(commands)] == []
    shown = _text(site, "reference/backends")
    for backend in backends().values():
        assert all(f"<code>{compiler.name}</code>" in shown for compiler in backend.compilers)
    codes = _text(site, "reference/exit-codes")
    assert all(f"<code>{code}</code>" in codes for code in EXIT_CODES)
    record = _text(site, "reference/results-file")
    for name, kind in schema()["$defs"].items():
        assert f"<h2 id={name.lower()}" in _bare(record)
        assert all(f"<code>{field}</code>" in record for field in kind.get("properties", ()))
    row = re.search(r"<code>latencies_ms</code>.*?</tr>", record, re.DOTALL)
    assert "<td>ms</td>" in row[0]


def _bare(text):
    return text.replace('"', "")


def test_python_and_links_to_the_repository_are_there(site):
    assert "Comparisons" in _text(site, "reference/python")
    assert "https://github.com/owner/repository/blob/main/" in _text(site, "guides/nightly")
    assert json.loads((site / "search" / "search_index.json").read_text())["docs"]
