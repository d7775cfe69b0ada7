"""Fixtures of the fault tests: each test injects one fault, and pytest counts them at its end."""

import json
from collections.abc import Callable

import pytest
from results_support import plain_document, write

from comparative_benchmark.cli import command as cli

# Hostile to every viewer: markup, a formula, a mention, a tag, a shell command, a title.
HOSTILE = "=cmd|[/bold]\x1b]0;title\x07@everyone <script>x</script> `id` $(id) [x](javascript:a)"


@pytest.fixture(autouse=True)
def injected(record_property: Callable[[str, object], None], request) -> None:
    """Counts the fault of a test."""
    record_property("injected", request.node.nodeid)


@pytest.fixture
def cbs(capsys, tmp_path, monkeypatch):
    """Runs `cbs` in this process, in a folder with `good.json`; returns code, output and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    monkeypatch.setattr(cli, "hold_standard_streams", lambda: None)
    write(tmp_path / "good.json")

    def run(*arguments):
        try:
            code = cli.main([str(argument) for argument in arguments])
        except SystemExit as leave:
            code = leave.code
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return run


@pytest.fixture
def hostile(tmp_path):
    """A results file with `HOSTILE` for every name that another user may choose."""
    document = plain_document()
    for run in document["runs"]:
        run["execution_environment"]["host"]["hostname"] = HOSTILE
    for record in document["benchmarks"]:
        record["definition"]["workload"]["label"] = HOSTILE
        record["definition"]["tags"] = [HOSTILE]
        record["log_file"] = f"/home/someone/{HOSTILE}.log"
    path = tmp_path / "hostile.json"
    path.write_text(json.dumps(document))
    return path
