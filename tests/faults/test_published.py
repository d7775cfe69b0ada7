"""Public files contain no host name, user name or private folder."""

import json

import pytest
from results_support import plain_document

from comparative_benchmark.reporting.formats import EXPORTS
from comparative_benchmark.results.published import published, without_folders
from comparative_benchmark.results.results_file import encode, read_document

HOST, USER = "build-box-7", "someone"


@pytest.fixture
def own(tmp_path):
    """A results file that names host, user and folders wherever a run does."""
    document = plain_document()
    # The latest run is repeated at the top.
    for run in (document, *document["runs"]):
        run["execution_environment"]["host"]["hostname"] = HOST
        run["trigger"]["command"] = [
            "cbs",
            "run",
            f"--suite=/home/{USER}/s.py",
            "-o",
            f"/home/{USER}/r",
        ]
    for record in document["benchmarks"]:
        record["log_file"] = f"/home/{USER}/results.logs/trial.log"
        record["definition"]["model_parameters"] |= {
            "source": f"/home/{USER}/net.py",
            "module": "",
            "callable": "Net",
            "source_sha256": "0" * 64,
        }
        record["definition"]["input_source"] = f"/home/{USER}/arrays"
        record["profile"] = {
            "directory": f"/home/{USER}/r.profiles/run/case",
            "error": f"/home/{USER}/trace: no space left",
        }
        for metrics in record["metrics"].values():
            metrics["variables"] = {"TF_CPP_VMODULE": f"/home/{USER}/modules"}
            metrics["without_second"] = f"failed: no such file: '/home/{USER}/vocab.txt'"
    path = tmp_path / "own.json"
    path.write_text(json.dumps(document))
    return path


def test_a_published_document_names_nobody(own):
    document = read_document(own)
    for shown, has_names in ((document, True), (published(document), False)):
        text = encode(shown).decode()
        assert (HOST in text and USER in text) == has_names
        assert (HOST in text or USER in text) == has_names
        # The page finds a profile next to the results file.
        directories = {result.profile.directory for result in shown.benchmarks}
        assert has_names or directories == {"r.profiles/run/case"}


def test_a_page_has_names_only_when_asked(cbs, own, tmp_path):
    page = tmp_path / "page.html"
    for asked in (False, True):
        code, _, err = cbs("report", own, "-o", page, *["--with-host"] * asked)
        assert code == 0, err
        text = page.read_text()
        assert (HOST in text or USER in text) == asked
    code, text, _ = cbs("report", own, "--markdown", "-")
    assert code == 0
    assert HOST not in text
    assert USER not in text


@pytest.mark.parametrize("name", EXPORTS)
def test_an_export_has_names_only_when_asked(cbs, own, tmp_path, name):
    if name == "parquet":
        pytest.importorskip("pyarrow")
    target = tmp_path / "export"
    code, _, err = cbs("export", own, "--format", name, "-o", target)
    assert code == 0, err
    files = [path for path in (target, *target.rglob("*")) if path.is_file()]
    assert files
    for path in files:
        assert HOST.encode() not in path.read_bytes()
        assert HOST not in str(path)
        assert USER.encode() not in path.read_bytes()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/me/a.py:7: no", ".../a.py:7: no"),
        ('File "/a/b c/d.py"', 'File ".../b c/d.py"'),
        ("https://host/a/b stays, a/b and 1/2 too", "https://host/a/b stays, a/b and 1/2 too"),
        ("--env=old=/opt/x/bin/python", "--env=old=.../python"),
        ("~/x/y", ".../y"),
        ("models/BERT/inputs/X", "models/BERT/inputs/X"),
        ("/tmp", "/tmp"),
    ],
)
def test_only_folders_are_left_out(text, shown):
    assert without_folders(text) == shown
