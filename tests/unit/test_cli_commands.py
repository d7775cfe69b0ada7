"""The registry of commands: what each refers to is there, and only what was asked for is loaded."""

import json
import pkgutil

import pytest

from comparative_benchmark.cli import command as cli
from comparative_benchmark.terminal.options import Parser

LOADED_OPTIONS = """
import json, sys
from comparative_benchmark import cli
try:
    cli.main(sys.argv[1:])
except SystemExit:
    pass
print(json.dumps(sorted(name for name in sys.modules if name.endswith(".options"))))
"""


@pytest.mark.parametrize("command", cli.COMMANDS, ids=lambda command: command.name)
def test_options_and_handler_of_a_command_are_there(command):
    command.add_options(Parser())
    assert callable(pkgutil.resolve_name(f"comparative_benchmark.{command.handler}"))


@pytest.mark.parametrize(
    ("arguments", "own"),
    [((), set()), (("parity",), {"parity"}), (("userbenchmark",), {"userbenchmarks", "bisection"})],
)
def test_options_of_other_commands_are_not_loaded(run_python, arguments, own):
    done = run_python(LOADED_OPTIONS, *arguments, "--help")
    assert done.returncode == 0, done.stderr
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert set(loaded) == {f"comparative_benchmark.{name}.options" for name in {*own, "terminal"}}
