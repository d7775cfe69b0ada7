"""The registry of commands: all references exist, and only the selected command is loaded."""

import json

import pytest

from comparative_benchmark.cli import command as cli
from comparative_benchmark.cli.options.parsing import Parser

LOADED_OPTIONS = """
import json, sys
from comparative_benchmark import cli
try:
    cli.main(sys.argv[1:])
except SystemExit:
    pass
print(json.dumps([name for name in sys.modules if name.startswith("comparative_benchmark.cli.")]))
"""


@pytest.mark.parametrize("command", cli.COMMANDS, ids=lambda command: command.name)
def test_options_and_handler_of_a_command_are_there(command):
    command.add_options(Parser())
    assert callable(cli.resolve(command.handler, "commands"))


@pytest.mark.parametrize(
    ("arguments", "own"),
    [
        ((), set()),
        (("parity",), {"run", "studies"}),
        (("userbenchmark",), {"benchmarks", "run", "studies"}),
    ],
)
def test_help_loads_neither_commands_nor_options_of_others(run_python, arguments, own):
    done = run_python(LOADED_OPTIONS, *arguments, "--help")
    assert done.returncode == 0, done.stderr
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert set(loaded) == {
        f"comparative_benchmark.cli.{name}"
        for name in ("command", "options", *(f"options.{name}" for name in {*own, "parsing"}))
    }


def test_help_groups_every_command_once(capsys):
    grouped = [name for names in cli._GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(command.name for command in cli.COMMANDS)
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 100
    assert all(f"  {command.name} " in out and command.help in out for command in cli.COMMANDS)


@pytest.mark.parametrize(
    ("words", "code", "printed"),
    [(["help"], 0, "compare:"), (["help", "show"], 0, "--baseline"), (["help", "shw"], 1, "show")],
)
def test_help_is_a_command(words, code, printed, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == code
    assert printed in "".join(capsys.readouterr())


def test_help_shows_one_spelling_of_an_option(capsys):
    with pytest.raises(SystemExit):
        cli.main(["run", "--help"])
    out = capsys.readouterr().out
    assert "--trial-budget" in out
    assert "--trial_budget" not in out
    # Both are accepted.
    assert cli.parse(["run", "--trial_budget", "5", "-name", "x"]).trial_budget == 5


def test_the_first_steps_work(capsys, monkeypatch):
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    assert cli.main([]) == 1
    lines = capsys.readouterr().err.splitlines()
    [race] = [line.split() for line in lines if "cbs run -name" in line]
    assert cli.main([*race[1:], "--dry-run"]) == 0
    out, err = capsys.readouterr()
    assert "competitors: 2" in err
    assert out.count("BERT_TINY_FP32_PT_32XI32_BATCH1/") == 2
