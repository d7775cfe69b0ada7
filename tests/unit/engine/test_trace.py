"""The time line: valid, nested, numbered, and whole on disk."""

import itertools
import json

import pytest

from comparative_benchmark.engine.messages import COMMAND, PAUSE, PHASE, Timeline


def _spans(timeline, category):
    return [span for span in timeline.spans if span.category == category]


def _complete(document):
    return [event for event in document["traceEvents"] if event["ph"] == "X"]


@pytest.fixture
def race(tmp_path):
    """Two processes that take turns; each look at the clock takes a microsecond."""
    clock = itertools.count(5_000, 1_000)
    timeline = Timeline()
    first, second = (timeline.process(name, lambda: next(clock)) for name in ("toy 1", "toy 2"))
    for track in (first, second):
        track.command("load")
        for phase in ("import", "load", "h2d"):
            track.phase(phase)
        track.answered()
        track.paused()
    for round_index, track in itertools.product(range(2), (second, first)):
        track.resumed()
        track.note(round=round_index)
        track.command("measure", iterations=7)
        track.phase("execute")
        track.answered()
        track.paused()
    for track in (first, second):
        track.resumed()
    path = tmp_path / "deep" / "race.trace.json"
    timeline.write(path)
    return timeline, path


def test_the_file_is_a_trace_of_all_processes(race):
    timeline, path = race
    document = json.loads(path.read_text())
    names = {
        event["pid"]: event["args"]["name"]
        for event in document["traceEvents"]
        if event["ph"] == "M" and event["name"] == "process_name"
    }
    assert names == {1: "toy 1", 2: "toy 2"}
    events = _complete(document)
    assert len(events) == len(timeline.spans) == 2 * (4 + 2 * 2 + 3)
    assert {event["pid"] for event in events} == set(names)
    assert {event["cat"] for event in events} == {COMMAND, PHASE, PAUSE}
    assert list(path.parent.iterdir()) == [path]


def test_times_are_microseconds_of_the_clock(race):
    first = _complete(json.loads(race[1].read_text()))[0]
    assert (first["name"], first["ts"]) == ("load", 5.0)
    assert all(event["dur"] >= 1.0 for event in _complete(json.loads(race[1].read_text())))


def test_spans_of_a_process_nest(race):
    for pid in (1, 2):
        open_until = []
        events = [e for e in _complete(json.loads(race[1].read_text())) if e["pid"] == pid]
        assert events == sorted(events, key=lambda e: (e["ts"], -e["dur"]))
        for event in events:
            end = event["ts"] + event["dur"]
            while open_until and open_until[-1] <= event["ts"]:
                open_until.pop()
            assert not open_until or end <= open_until[-1]
            open_until.append(end)


def test_phases_lie_in_their_command_and_follow_each_other(race):
    spans = [span for span in race[0].spans if span.process_label == "toy 1"]
    command = next(span for span in spans if span.category == COMMAND)
    phases = [span for span in spans if span.category == PHASE][:3]
    assert [span.name for span in phases] == ["import", "load", "h2d"]
    assert command.start_ns < phases[0].start_ns
    assert phases[-1].end_ns <= command.end_ns
    for before, after in itertools.pairwise(phases):
        assert before.end_ns == after.start_ns


def test_blocks_tell_their_round_and_iterations_and_only_they(race):
    executed = [span for span in race[0].spans if span.name == "execute"]
    assert [span.args for span in executed] == [
        {"iterations": 7, "round": index} for index in (0, 0, 1, 1)
    ]
    assert all(not span.args for span in race[0].spans if span.name in ("import", "stopped"))


def test_competitors_of_a_race_do_not_run_while_stopped(race):
    for pause in _spans(race[0], PAUSE):
        for span in race[0].spans:
            if span.process_label == pause.process_label and span is not pause:
                assert span.end_ns <= pause.start_ns or pause.end_ns <= span.start_ns


def test_a_worker_that_dies_in_a_phase_leaves_spans_up_to_its_end():
    clock = itertools.count(0, 10)
    timeline = Timeline()
    track = timeline.process("toy", lambda: next(clock))
    track.command("compile")
    track.phase("compile")
    track.answered()
    track.answered()
    track.resumed()
    assert [(s.name, s.category, s.start_ns, s.end_ns) for s in timeline.spans] == [
        ("compile", PHASE, 10, 20),
        ("compile", COMMAND, 0, 20),
    ]


def test_a_command_ends_one_that_had_no_answer():
    timeline = Timeline()
    track = timeline.process("toy")
    track.command("load")
    track.command("compile")
    track.answered()
    first, second = timeline.spans
    assert (first.name, second.name) == ("load", "compile")
    assert first.end_ns <= second.start_ns


def test_a_span_that_ends_before_it_begins_is_refused():
    with pytest.raises(ValueError, match="toy: execute ends 5 ns before it begins"):
        Timeline().span("toy", "execute", PHASE, 10, 5)


def test_what_json_can_not_hold_leaves_no_file(tmp_path):
    timeline = Timeline()
    timeline.span("toy", "execute", PHASE, 0, 1, latency=float("nan"))
    with pytest.raises(ValueError):
        timeline.write(tmp_path / "trace.json")
    assert list(tmp_path.iterdir()) == []
