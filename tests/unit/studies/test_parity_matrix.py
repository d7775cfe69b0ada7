"""How a matrix is shown, kept and judged."""

import datetime
import io
import json

import pytest
from rich.console import Console

from comparative_benchmark.cli.commands import parity as command
from comparative_benchmark.results.expected_failures import Ending, ExpectedFailure, judge
from comparative_benchmark.results.record import Status
from comparative_benchmark.studies.parity import matrix
from comparative_benchmark.studies.parity.grid import CellResult, ParityFile, ParityFileError

LABELS = ("bert-tiny-fp32-1x32xi32", "resnet-tiny-fp32-1x3x32x32xf32")
COMPETITORS = ("jax_xla:xla", "iree:llvm-cpu-data-tiling")


def result(label=LABELS[0], competitor=COMPETITORS[0], status="ok", framework="jax", **changes):
    fields = {
        "workload": f"digest of {label}",
        "workload_id": f"{label}-0123",
        "case": f"models/{label}/inputs/X",
        "device": "host-cpu",
        "phase": None if status == "ok" else "first_run",
        "reason": None if status == "ok" else f"{status} because",
        "relative_error": 3.21e-7 if status in ("ok", "wrong_output") else None,
    }
    return CellResult(
        label=label,
        competitor=competitor,
        status=Status(status),
        framework=framework,
        **{**fields, **changes},
    )


def shown(results, expected=None, width=200):
    found = matrix.layout(results, expected=expected or {}, width=width)
    console = Console(file=io.StringIO(), width=width, color_system=None)
    for table in found.tables:
        console.print(table)
    return console.file.getvalue(), list(found.lines), found


def test_cells_show_status_and_error_and_reasons_are_footnotes():
    results = [
        result(),
        result(competitor=COMPETITORS[1], status="wrong_output", relative_error=0.123),
        result(LABELS[1]),
        result(LABELS[1], competitor=COMPETITORS[1], status="unsupported"),
    ]
    text, lines, _ = shown(results)
    bert = next(line for line in text.splitlines() if line.startswith(LABELS[0]))
    assert "ok 3.2e-07" in bert
    assert "wrong_output 1.2e-01 [1]" in bert
    resnet = next(line for line in text.splitlines() if line.startswith(LABELS[1]))
    assert "unsupported [2]" in resnet
    assert lines == ["[1] in first_run: wrong_output because", "[2] unsupported because"]


def test_one_reason_has_one_number():
    results = [
        result(label, competitor, "crashed") for label in LABELS for competitor in COMPETITORS
    ]
    text, lines, _ = shown(results)
    assert text.count("crashed [1]") == 4
    assert len(lines) == 1


def test_a_column_without_anything_to_run_is_one_line():
    results = [
        cell
        for label in LABELS
        for cell in (
            result(label),
            result(label, competitor="pt_inductor:eager", status="unsupported"),
        )
    ]
    text, lines, _ = shown(results)
    assert "pt_inductor" not in text
    assert lines == ["unsupported [1]: jax pt_inductor:eager", "[1] unsupported because"]


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal_and_no_cell_is_lost(width):
    competitors = [f"backend_{number}:compiler" for number in range(9)]
    results = [result(label, competitor) for label in LABELS for competitor in competitors]
    text, _, found = shown(results, width=width)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    assert text.count("ok 3.2e-07") == 18
    assert "…" not in text
    assert len(found.tables) == (1 if width == 200 else len(found.tables))
    assert all(text.count(f"backend_{number}") == 1 for number in range(9))


def test_a_known_failure_is_shown_and_counted_as_expected():
    wrong = result(status="wrong_output")
    results = [wrong, result(LABELS[1])]
    text, lines, _ = shown(results, {wrong.key: "fp16 sums"})
    assert "expected [1]" in text
    assert "wrong_output in first_run" in lines[0]
    assert lines[0].endswith("expected: fp16 sums")
    assert matrix.counts(results, {wrong.key: "fp16 sums"}) == {"ok": 1, "expected": 1}


def _judged(results, *entries, today=datetime.date(2026, 1, 1)):
    endings = [
        Ending(
            case_name=item.case,
            competitor=item.competitor,
            device=item.device,
            status=item.status.value,
        )
        for item in results
    ]
    return judge(entries, endings, today=today)


def _entry(status):
    return ExpectedFailure(
        name=".+",
        competitor=".+",
        device=".+",
        status=status,
        reason="known",
        link="https://example.org",
        expires=datetime.date(2026, 12, 31),
    )


@pytest.mark.parametrize(
    ("statuses", "entries", "code"),
    [
        (["ok", "unsupported"], [], 0),
        (["ok", "wrong_output", "crashed"], [], 2),
        (["ok", "crashed"], [], 1),
        (["ok", "timeout"], [], 1),
        (["unsupported"], [], 3),
        (["crashed"], ["crashed"], 0),
        (["wrong_output", "unsupported"], ["wrong_output"], 0),
        (["crashed", "wrong_output"], ["crashed"], 2),
        (["ok"], ["crashed"], 1),  # it passes: the list is out of date
        (["ok", "wrong_output"], ["wrong_output"], 1),
    ],
)
def test_exit_code(statuses, entries, code):
    results = [result(f"w{number}", status=status) for number, status in enumerate(statuses)]
    judgement = _judged(results, *map(_entry, entries))
    assert command.exit_code(results, judgement) == code


def _file(path, *, resume=False, revision=None, **versions):
    packages = [{"name": name, "version": version} for name, version in versions.items()]
    environment = {"python_environment": packages, "git_revision": revision}
    return ParityFile(path, command=["cbs"], execution_environment=environment, resume=resume)


def test_the_file_holds_every_cell_and_how_it_ended(tmp_path):
    path = tmp_path / "new" / "matrix.json"
    wrong = result(LABELS[1], status="wrong_output")
    with _file(path) as file:
        file.put(result())
        file.put(wrong)
        file.finish(
            expected={wrong.key: "known"},
            drift=[],
            counts={"ok": 1},
            exit_code=0,
            device="host-cpu",
        )
    document = json.loads(path.read_text())
    assert (document["schema_version"], document["kind"]) == (1, "parity")
    assert [cell["status"] for cell in document["cells"]] == ["ok", "wrong_output"]
    assert [cell.get("expected") for cell in document["cells"]] == [None, "known"]
    assert document["exit_code"] == 0
    assert document["cells"][0]["relative_error"] == 3.21e-7


def test_resuming_takes_over_what_is_settled_on_that_device(tmp_path):
    path = tmp_path / "matrix.json"
    with _file(path) as file:
        file.put(result())
        file.put(result(LABELS[1], status="crashed"))
    with _file(path, resume=True) as again:
        assert list(again.settled("host-cpu").values()) == [result()]
        assert again.settled("host-gpu") == {}
        again.put(result(LABELS[1]))
    assert [cell["status"] for cell in json.loads(path.read_text())["cells"]] == ["ok", "ok"]


def test_resuming_measures_again_what_other_packages_may_change(tmp_path):
    path = tmp_path / "matrix.json"
    with _file(path, jax="1") as file:
        file.put(result(versions={"jax": "1"}))
        file.put(result(LABELS[1], status="unsupported", phase="import"))
        # Its packages were not loaded.
        file.put(result(LABELS[1], COMPETITORS[1], status="unsupported", phase="load"))
    with _file(path, resume=True, jax="1") as same:
        assert list(same.settled("host-cpu").values()) == [result(versions={"jax": "1"})]
    with _file(path, resume=True, jax="2") as newer:
        assert newer.settled("host-cpu") == {}


def test_cells_of_another_revision_are_refused(tmp_path):
    path = tmp_path / "matrix.json"
    with _file(path, revision="a") as file:
        file.put(result())
    with _file(path, resume=True, revision="a") as same:
        assert list(same.settled("host-cpu").values()) == [result()]
    with pytest.raises(ParityFileError, match="is from revision a of the suite, not b"):
        _file(path, resume=True, revision="b")
    assert len(json.loads(path.read_text())["cells"]) == 1


def test_without_resume_a_matrix_is_made_again(tmp_path):
    path = tmp_path / "matrix.json"
    with _file(path) as first:
        first.put(result())
    with _file(path) as second:
        assert second.settled("host-cpu") == {}
    assert json.loads(path.read_text())["cells"] == []


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", '{"kind": "parity"}', '{"benchmarks": []}', "[" * 100_000),
        '{"kind": "parity", "schema_version": 2, "cells": []}',
        '{"kind": "parity", "schema_version": 1, "cells": [{"status": "fine"}]}',
    ],
)
def test_a_foreign_file_is_refused_and_left_as_it_is(tmp_path, content):
    path = tmp_path / "matrix.json"
    path.write_text(content)
    with pytest.raises(ParityFileError, match=r"matrix\.json"):
        _file(path)
    assert path.read_text() == content


def test_two_do_not_write_the_same_file(tmp_path):
    path = tmp_path / "matrix.json"
    with _file(path) as first:
        first.put(result())
        expected = r"another .*matrix\.json; .* choose another file"
        with pytest.raises(ParityFileError, match=expected):
            _file(path, resume=True)
    with _file(path, resume=True) as later:
        assert list(later.settled("host-cpu").values()) == [result()]
