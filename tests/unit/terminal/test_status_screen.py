"""The status line: current trial, elapsed and remaining time; never while one is timed."""

import os
import pty
import re
import subprocess
import sys
import threading

import pytest

from comparative_benchmark.engine import session
from comparative_benchmark.terminal.status import StatusScreen


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def pipe(clock, capsys):
    screen = StatusScreen(clock, width=200)

    def said():
        return capsys.readouterr().err.splitlines()

    return screen, said


def test_without_a_terminal_there_is_a_line_every_30_s_and_none_sooner(pipe, clock):
    screen, said = pipe
    for second in range(100):
        clock.now = float(second)
        screen.beat("jax_xla:xla, process 2 of 3", "compile")
    lines = said()
    assert lines == [
        f"jax_xla:xla, process 2 of 3  compile {seconds}  {seconds} elapsed"
        for seconds in ("30 s", "60 s", "2 min")
    ]


def test_a_phase_has_its_own_time(pipe, clock):
    screen, said = pipe
    screen.beat("jax_xla:xla, process 1 of 3", "compile")
    clock.now = 600.0
    screen.beat("jax_xla:xla, process 1 of 3", "execute")
    clock.now = 640.0
    screen.beat("jax_xla:xla, process 1 of 3", "execute")
    assert said()[-1] == "jax_xla:xla, process 1 of 3  execute 40 s  11 min elapsed"


def test_a_command_that_speaks_needs_no_status_beside(pipe, clock):
    screen, said = pipe
    for second in range(0, 100, 10):
        clock.now = float(second)
        screen.print("a line")
        screen.beat("w", "load")
    assert set(said()) == {"a line"}


def test_what_is_left_follows_from_what_was_done(pipe, clock):
    screen, said = pipe
    clock.now = 100.0  # preparation counts for nothing
    screen.at("BERT, 2 competitors", 0, 12)
    assert "left" not in said()[-1]
    clock.now = 400.0
    screen.at("T5, 2 competitors", 3, 12)
    # 3 in 300 s, so 9 in 900 s.
    assert said() == ["[4/12] T5, 2 competitors  7 min elapsed  about 15 min left"]
    clock.now = 500.0
    screen.at("", 12, 12)
    assert "left" not in said()[-1]


def test_a_resumed_run_counts_what_it_does_itself(pipe, clock):
    screen, said = pipe
    screen.at("a", 10, 12)
    clock.now = 60.0
    screen.at("b", 11, 12)
    assert said()[-1].endswith("about 60 s left")


def test_no_listener_hears_of_a_worker_that_is_timed():
    heard = []
    with session.listening(lambda *beat: heard.append(beat)):
        session.beat("w", "compile", entered=True)
        session.beat("w", "compile")
        session.beat("w", "execute", entered=True)
        for _ in range(5):
            session.beat("w", "execute")
    session.beat("w", "load")
    assert heard == [("w", "compile"), ("w", "compile"), ("w", "execute")]


_PROGRAM = """
from rich.text import Text
from comparative_benchmark.engine import session
from comparative_benchmark.terminal.status import StatusScreen

screen = StatusScreen()
with screen.following():
    screen.at("BERT", 2, 12)
    session.beat("jax_xla:xla, process 2 of 3", "compile", entered=True)
    session.beat("jax_xla:xla, process 2 of 3", "compile")
    screen.print(Text("[ 3/12] ok"))
    session.beat("x" * 500, "load", entered=True)
"""


def test_on_a_terminal_the_line_is_drawn_over_and_taken_away():
    text = _text_on_a_terminal(_PROGRAM, columns=60)
    drawn = text.split("\r\x1b[2K")
    assert drawn[0] == "[3/12] BERT  0 s elapsed"
    # The line is cut at the width of the terminal.
    assert drawn[1] == "[3/12] BERT  jax_xla:xla, process 2 of 3  compile 0 s  0 s…"
    assert drawn[2].startswith("[ 3/12] ok\r\n[3/12] BERT  xxx")
    assert len(drawn[2].splitlines()[-1]) == 59
    assert drawn[3:] == [""]
    assert not re.search(r"\n.*\n", text)


_LONG = """
from rich.text import Text
from comparative_benchmark.terminal.status import StatusScreen

screen = StatusScreen()
screen.print(Text("other processes use 100% of the CPU time, so the race may end without verdicts"))
screen.print(Text("More processes may decide this; run: cbs run -o results.json --resume"))
screen.print(Text("results are in " + "/folder" * 12))
screen.at("a-workload-with-a-long-name-fp32-1x32xi32", 2, 12)
screen.beat("xla", "compile")
"""


def test_lines_break_between_words_but_commands_stay_whole():
    lines = _text_on_a_terminal(_LONG, columns=60).split("\r\n")
    assert [line.rstrip() for line in lines[:4]] == [
        "other processes use 100% of the CPU time, so the race may",
        "end without verdicts",
        "More processes may decide this; run: cbs run -o results.json --resume",
        "results are in " + "/folder" * 12,
    ]


def test_a_long_name_leaves_room_for_the_times():
    last = _text_on_a_terminal(_LONG, columns=60).split("\x1b[2K")[-1]
    assert last == "[3/12] a-workload-with-a-lo…  xla  compile 0 s  0 s elapsed"


_RACE = """
from types import SimpleNamespace
from comparative_benchmark.engine import session
from comparative_benchmark.results.outcome import ProcessRecord
from comparative_benchmark.results.record import Block, Status
from comparative_benchmark.terminal.status import LiveRace, StatusScreen

def ended(key, status=Status.OK):
    blocks = [Block(latencies_ms=(10.0, 12.0, 11.0))] if status is Status.OK else []
    return SimpleNamespace(key=key, process=ProcessRecord(status=status, blocks=blocks))

screen = StatusScreen()
race = LiveRace([SimpleNamespace(key=k, competitor=k) for k in ("eager", "xla")], 2)
with screen.following():
    screen.at("BERT", 4, 12)
    screen.show_table(race)
    for entry in (ended("eager"), ended("xla", Status.WRONG_OUTPUT), ended("eager")):
        session.beat("eager, process 1 of 2", "compile", entered=True)
        race.add(entry)
        screen.advance(2 * race.share)
    screen.print("a line")
    session.beat("eager", "load", entered=True)
    screen.show_table(None)
    screen.print("the end")
"""


def _text_on_a_terminal(program, *, columns):
    """Returns all that a program writes to a terminal without colours."""
    ours, theirs = pty.openpty()
    size = {"TERM": "xterm", "NO_COLOR": "1", "COLUMNS": f"{columns}", "LINES": "20"}
    command = [sys.executable, "-P", "-c", program]
    with subprocess.Popen(
        command, stderr=theirs, stdin=theirs, env={**os.environ, **size}
    ) as process:
        os.close(theirs)
        text = b""
        while piece := _read(ours):
            text += piece
    os.close(ours)
    assert process.returncode == 0, text
    return text.decode()


def _screens(program):
    """Returns the lines on the terminal before each time that it is erased, and at the end."""
    lines, screens = [""], []
    for part in re.split(
        r"(\r\n|\r|\x1b\[2K|\x1b\[1A|\x1b\[\d*m)", _text_on_a_terminal(program, columns=70)
    ):
        if part == "\r\n":
            lines.append("")
        elif part == "\r":
            screens.append([line.rstrip() for line in lines])
        elif part == "\x1b[2K":
            lines[-1] = ""
        elif part == "\x1b[1A":
            lines.pop()
        elif not part.startswith("\x1b"):
            lines[-1] += part
    return [*screens, lines]


def test_a_race_has_a_table_of_its_processes():
    *screens, last = _screens(_RACE)
    bar = "\u2501" * 12
    tables = [[re.sub(r"[\u2501\u2578\s]{2,}", " | ", line) for line in s] for s in screens]
    assert tables[1] == [
        "eager | 0 of 2 processes",
        "xla | 0 of 2 processes",
        "[5/12] BERT | eager | compile 0 s | 0 s elapsed",
    ]
    assert tables[2][:2] == ["eager | 1 of 2 processes | 11 ms so far", "xla | 0 of 2 processes"]
    # A wrong output has no speed, and its trial gets no more processes.
    assert any(table[1:2] == ["xla | 1 of 2 processes | wrong_output"] for table in tables)
    complete = next(s for s in screens if "2 of 2" in s[0])
    assert complete[0].split("  ")[1] == bar
    assert "[5/12] BERT" in complete[2]
    # The table moves below a line that is printed, and is gone at the end.
    assert any(s[0] == "a line" and "2 of 2" in s[1] and len(s) == 4 for s in screens)
    assert last == ["a line", "the end", ""]


def _read(descriptor):
    try:
        return os.read(descriptor, 4096)
    except OSError:  # Linux raises it when the other end is closed
        return b""


def test_what_says_nothing_itself_is_said_to_go_on_until_it_is_over(monkeypatch):
    monkeypatch.setattr(session, "_BEATS_S", 0.01)
    heard, enough = [], threading.Event()

    def listen(whom, phase):
        heard.append((whom, phase))
        if len(heard) > 3:
            enough.set()

    def fail():
        with session.during("scipy 1.15", "installing"):
            assert enough.wait(10)
            raise OSError("pip failed")

    with session.listening(listen), pytest.raises(OSError, match="pip failed"):
        fail()
    assert set(heard) == {("scipy 1.15", "installing")}
    assert not [t for t in threading.enumerate() if t.name.startswith("pulse")]
