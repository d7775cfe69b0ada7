"""The 28 faults of the review, each with the test that prevents its return.

`REVIEW` lists them in the review's order. Tests without a path are below; the others are
next to the tests of the same code.
"""

import ast
import contextlib
import csv
import http.server
import importlib.util
import io
import json
import re
import shlex
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from openxla.benchmark.comparative_suite import catalog

ROOT = Path(__file__).resolve().parents[2]
UNIT = "tests/unit/"
MUTATIONS = (
    f"{UNIT}results/test_results_mutations.py"
    "::test_a_damaged_file_is_refused_in_one_line_or_does_no_harm"
)
COMMANDS = "tests/faults/test_every_command.py::test_"
REVIEW = {
    "a gate passes when its reader dies": (
        f"{UNIT}terminal/test_cli_streams.py::test_a_gate_whose_reader_died_has_not_passed"
    ),
    "a closed descriptor stores a false result": (
        f"{UNIT}terminal/test_cli_streams.py::test_a_closed_stream_stores_no_false_result"
    ),
    "a refusal prints the password": (
        f"{UNIT}terminal/test_cli_streams.py::test_no_refusal_prints_a_secret"
    ),
    "repro runs a path of the file": (
        f"{UNIT}api/test_recorded_trials.py"
        "::test_an_interpreter_that_the_file_names_is_not_run_unasked"
    ),
    "repro takes requirements of the file": (
        f"{UNIT}studies/test_repro_directory.py"
        "::test_a_results_file_adds_no_lines_to_the_requirements"
    ),
    "compare --markdown passes mentions and links": (
        f"{UNIT}terminal/test_markdown_text.py::test_text_stays_text"
    ),
    "show on damaged fields": MUTATIONS,
    "repro on damaged runs": MUTATIONS,
    "run -o and --resume on damaged files": MUTATIONS,
    "junit on huge numbers": MUTATIONS,
    "markup and escapes reach the terminal": "test_names_cannot_steer_the_terminal",
    "CSV formulas": "test_csv_has_no_formulas",
    "userbenchmark --issue raw names": "test_an_issue_has_no_raw_names",
    "archives that raise something else": f"{UNIT}suite/test_archives.py::test_traps_are_refused",
    "a redirect carries the token away": "test_a_redirect_does_not_carry_the_token_away",
    "anyone's comment is replaced": "test_a_comment_of_another_is_left_alone",
    "odd JSON of GitHub": "test_odd_answers_of_github_are_a_line",
    "report in a read-only folder": f"{COMMANDS}a_read_only_folder_is_told_in_a_line",
    "long names": f"{COMMANDS}a_name_of_300_characters_is_refused_in_a_line",
    "/dev/full": f"{COMMANDS}a_fault_around_a_command_is_told_in_a_line",
    "ASCII output": f"{COMMANDS}a_fault_around_a_command_is_told_in_a_line",
    "a history of revision 0000": "test_a_damaged_history_is_a_line",
    "bad JSON in a history": "test_a_damaged_history_is_a_line",
    "a time beyond the calendar": "test_a_damaged_history_is_a_line",
    "modules of the current directory": "test_no_python_of_ours_imports_from_the_current_directory",
    "an expression that never ends": "test_an_expression_that_never_ends_is_ended",
    "a pull request's text takes seconds": "test_a_text_of_spaces_or_comments_is_read_at_once",
    "bash's %q for another shell": "test_an_interpreter_script_is_plain_sh",
}


def test_each_of_the_28_has_a_test_that_is_there():
    assert len(REVIEW) == 28
    for place in REVIEW.values():
        path, _, name = place.rpartition("::")
        text = (ROOT / path if path else Path(__file__)).read_text()
        assert re.search(rf"^def {name}", text, re.MULTILINE), place


READERS = [
    *("show hostile.json", "show hostile.json --baseline jax_xla:xla"),
    *("compare hostile.json hostile.json", "compare good.json hostile.json --markdown"),
    *(
        "report hostile.json --markdown -",
        "history query --db h.sqlite",
        "history ls --db h.sqlite",
    ),
    *("repro hostile.json nothing", "export hostile.json --format junit -o -"),
]


@pytest.mark.parametrize("line", READERS)
def test_names_cannot_steer_the_terminal(cbs, hostile, line):
    if "h.sqlite" in line:
        code, _, err = cbs("history", "import", hostile, "--db", "h.sqlite")
        assert code == 0, err
    code, out, err = cbs(*line.split())
    assert code == 1 if line.startswith("repro") else code in (0, 2), err
    assert "\x1b" not in out + err
    assert "\x07" not in out + err
    if "arkdown" in line:
        assert "@everyone" not in out
        assert "<script>" not in out
        assert "[x](javascript" not in out


@pytest.mark.parametrize("line", ["export hostile.json --format csv -o -", "history query"])
def test_csv_has_no_formulas(cbs, hostile, line):
    if line.startswith("history"):
        assert cbs("history", "import", hostile, "--db", "h.sqlite")[0] == 0
        line += " --db h.sqlite --format csv"
    code, out, _ = cbs(*line.split())
    assert code == 0
    assert "'=cmd|" in out
    assert [c for row in csv.reader(io.StringIO(out)) for c in row if c.startswith("=")] == []


def test_an_issue_has_no_raw_names(cbs, tmp_path):
    for name, value in (("control", 1.0), ("treatment", 9.0)):
        metrics = {"@everyone [x](javascript:a) latency": value, f"<b>{name}": 1.0}
        document = {"name": "x", "environ": {"pytorch_git_version": "0"}, "metrics": metrics}
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    issue = tmp_path / "issue.md"
    files = ("control.json", "treatment.json")
    code, _, err = cbs("userbenchmark", "compare", *files, "--issue", issue)
    assert code in (0, 2, 3), err
    text = issue.read_text()
    assert "@everyone" not in text
    assert "[x](javascript" not in text
    assert "<b>" not in text


# Scripts.


def _script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def github():
    """A server with the answers of a test; it records the requests."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked.append((self.command, self.path, self.headers.get("Authorization")))
            status, headers, body = server.answer(self.command)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_PATCH = do_GET  # noqa: N815  # names that the base class calls

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.asked = asked
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def _comment(server, monkeypatch, tmp_path, capsys):
    post = _script("github_post")
    (tmp_path / "table.md").write_text("a table")
    url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("GITHUB_API_URL", url)
    monkeypatch.setenv("GITHUB_REPOSITORY", "owner/name")
    monkeypatch.setenv("GITHUB_TOKEN", "secret-token")
    words = ["comment", "--pull", "7", "--marker", "m", str(tmp_path / "table.md")]
    monkeypatch.setattr(sys, "argv", ["github_post.py", *words])
    return post.main(), capsys.readouterr().err


def test_a_redirect_does_not_carry_the_token_away(github, monkeypatch, tmp_path, capsys):
    elsewhere = f"http://localhost:{github.server_port}/elsewhere"
    github.answer = lambda _: (302, {"Location": elsewhere}, b"[]")
    code, said = _comment(github, monkeypatch, tmp_path, capsys)
    assert code == 1
    assert "302" in said
    assert all("elsewhere" not in path for _, path, _ in github.asked)


def test_a_comment_of_another_is_left_alone(github, monkeypatch, tmp_path, capsys):
    theirs = [{"id": 1, "user": {"login": "mallory"}, "body": "<!-- m -->\nmine now"}]
    answers = {"GET": theirs, "POST": {"html_url": "https://github/new"}}
    github.answer = lambda method: (200, {}, json.dumps(answers[method]).encode())
    code, said = _comment(github, monkeypatch, tmp_path, capsys)
    assert code == 0, said
    assert [method for method, _, _ in github.asked] == ["GET", "POST"]


@pytest.mark.parametrize("answer", ["null", "7", '[["x"]]', "[null]", '{"a": 1}', "[{}]", "nope"])
def test_odd_answers_of_github_are_a_line(github, monkeypatch, tmp_path, capsys, answer):
    github.answer = lambda _: (200, {}, answer.encode())
    code, said = _comment(github, monkeypatch, tmp_path, capsys)
    assert code == 1
    assert len(said.splitlines()) == 1
    assert said.startswith("github: ")


@pytest.mark.parametrize(
    "text",
    ["RUN_BENCHMARK: A" + " " * 60_000 + "x", "<!--" * 15_000, " " * 60_000, "<!-- -->" * 8_000],
    ids=["spaces", "opened", "blank", "comments"],
)
def test_a_text_of_spaces_or_comments_is_read_at_once(text):
    """It took quadratic time: 6 s for a quarter of this length."""
    request = _script("pr_request")
    started = time.process_time()
    with contextlib.suppress(request.RequestError):
        request.request_of(text)
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    "folder", ["it's", "a b", "$HOME", "`id`", "tab\there", "\u00fc\u20ac", "a\\"]
)
def test_an_interpreter_script_is_plain_sh(tmp_path, folder):
    text = (ROOT / "scripts/pr_benchmark.sh").read_text()
    functions = text[text.index("quoted()") : text.index('interpreter "${FOLDER}/base"')]
    checkout = tmp_path / folder
    checkout.mkdir()
    python = checkout / "python"
    python.write_text('#!/bin/sh\nprintf %s "$PYTHONPATH"\n')
    python.chmod(0o755)
    script = tmp_path / "script"
    words = shlex.join(map(str, (checkout, python, script)))
    subprocess.run(["bash", "-c", f"{functions}\ninterpreter {words}"], check=True)
    assert "$'" not in script.read_text()
    done = subprocess.run(
        ["sh", script], env={}, capture_output=True, encoding="utf-8", check=False
    )
    assert done.stdout.partition(":")[0] == str(checkout), done.stderr


# A history that another program has changed.


@pytest.mark.parametrize("line", ["history ls", "history query", "history query --format csv"])
@pytest.mark.parametrize(
    "damage",
    [
        "update cbs_history_version set version_num = '0000'",
        "update cbs_results set extra = '{bad'",
        "update cbs_series set options = 'x'",
        "update cbs_results set time_us = 9000000000000000000",
        "update cbs_results set time_us = 'noon'",
    ],
    ids=["revision 0000", "extra", "options", "time", "text for time"],
)
def test_a_damaged_history_is_a_line(cbs, damage, line):
    assert cbs("history", "import", "good.json", "--db", "h.sqlite")[0] == 0
    with sqlite3.connect("h.sqlite") as connection:
        connection.execute(damage)
    connection.close()
    code, _, err = cbs(*line.split(), "--db", "h.sqlite")
    if code == 0:
        # Values that it does not read have no effect.
        assert "extra" in damage or "noon" in damage
        assert err == ""
        return
    assert code == 1
    assert err.startswith("cbs: ")
    assert len(err.splitlines()) == 1


# Processes and expressions.


def test_no_python_of_ours_imports_from_the_current_directory():
    """Every command line that begins with a Python and an option has `-P` or `-I`."""
    lacking = []
    folders = ("comparative_benchmark", "common_benchmark_suite", "scripts", "userbenchmark")
    for path in (path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, (ast.List, ast.Tuple)):
                continue
            for first, second in zip(node.elts, node.elts[1:], strict=False):
                if isinstance(first, ast.Constant):
                    continue  # a text for people
                runs = re.search(r"\bpython\b|sys\.executable", ast.unparse(first))
                if runs and ast.unparse(second) in ("'-m'", "'-c'"):
                    lacking.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert lacking == []


@pytest.mark.parametrize("line", ["list -name", "list --workload", "parity -name"])
def test_an_expression_that_never_ends_is_ended(cbs, monkeypatch, line):
    monkeypatch.undo()  # the timer needs the real `signal`
    monkeypatch.setattr(catalog, "PATIENCE_S", 0.05)
    code, out, err = cbs(*line.split(), "(.*)*(.*)*(.*)*(.*)*zzz$")
    assert code == 1
    assert out == ""
    assert "matching a name took more than 0.05 s" in err
