"""Invalid words for every command and action, which are found from the parsers themselves."""

import argparse

import pytest

from comparative_benchmark.cli.command import COMMANDS
from comparative_benchmark.cli.options.parsing import Parser

SECRET = "s3cret"
HOSTILE = f"--\x1b]0;title\x07{'n' * 300}=https://user:{SECRET}@host/?token={SECRET}"


def _paths(words, parser):
    below = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    yield words
    for action in below:
        for name, inner in action.choices.items():
            yield from _paths(f"{words} {name}", inner)


def _every():
    for command in COMMANDS:
        parser = Parser(prog=command.name)
        command.add_options(parser)
        yield from _paths(command.name, parser)


EVERY = list(_every())


@pytest.mark.parametrize("words", EVERY)
def test_help_is_for_every_terminal(cbs, words, monkeypatch):
    for columns in ("1", "wide", "500"):
        monkeypatch.setenv("COLUMNS", columns)
        code, out, err = cbs(*words.split(), "--help")
        assert code == 0
        assert out.startswith("usage: cbs")
        assert err == ""


@pytest.mark.parametrize("words", EVERY)
def test_a_word_that_steers_or_tells_a_secret_is_refused_in_two_lines(cbs, words, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    code, out, err = cbs(*words.split(), HOSTILE)
    assert code == 1
    assert out == ""
    assert len(err.splitlines()) == 2
    assert err.replace("\n", "").isprintable()
    assert SECRET not in err
    assert sorted(tmp_path.rglob("*")) == before
