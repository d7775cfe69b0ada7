"""Damaged results files, through every reader: one line, exit code 1, and nothing is changed.

A mutation takes a good file and does one thing to it. A reader may find nothing wrong with it (an
optional field that is gone): then it must work as it does on the good file.
"""

import copy
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from results_support import content_of, plain_document

import comparative_benchmark as cb
from comparative_benchmark.cli import command as cli
from comparative_benchmark.reporting.formats import EXPORTS

pytestmark = pytest.mark.slow

SEED, COUNT = 20_261_122, 320
AGE = "compile-processes-fixed"
CASE = "models/BERT_TINY_FP32_JAX_32XI32_BATCH1/inputs/INPUT_DATA_MODEL_DEFAULT"
WRONG_VALUES = (
    *(None, True, "", "text", -1, -1.5, 10**400, 1e308, [], {}, [[]], "\ud800", "a\0b", "\x1b[2J"),
    *({"a": {"b": 1}}, [None], "é" * 5000),
)
GOOD = (0, 2, 3)

Path_ = tuple[str | int, ...]


def places(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Yields the paths of all values in a document, of long lists the first two items."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else ()
    for key, item in items or (enumerate(value[:2]) if isinstance(value, list) else ()):
        yield from places(item, (*path, key))


def changed(path: Path_, change: Callable[[Any, str | int], None]) -> bytes:
    """Returns the good file with one change in the container of a place."""
    document = plain_document(AGE)
    holder = document
    for step in path[:-1]:
        holder = holder[step]
    change(holder, path[-1])
    return json.dumps(document).encode()


def removed(path: Path_) -> bytes:
    def change(holder: Any, key: str | int) -> None:
        del holder[key]

    return changed(path, change)


def replaced(path: Path_, value: Any) -> bytes:
    def change(holder: Any, key: str | int) -> None:
        holder[key] = value

    return changed(path, change)


def mutations() -> Iterator[tuple[str, bytes]]:
    """Yields names and contents, no two of them the same."""
    choice = random.Random(SEED)
    good = content_of(AGE)
    every = list(places(json.loads(good)))
    yield from named()
    for path in choice.sample([p for p in every if isinstance(p[-1], str)], 110):
        yield f"without {path}", removed(path)
    for path in choice.sample(every, 130):
        value = choice.choice(WRONG_VALUES)
        yield f"{ascii(value)[:20]} at {path}", replaced(path, copy.deepcopy(value))
    for end in choice.sample(range(len(good)), 25):
        yield f"cut at {end}", good[:end]
    for place in choice.sample(range(len(good)), 30):
        spoilt = bytearray(good)
        spoilt[place] = choice.randrange(256)
        yield f"byte {place} is {spoilt[place]}", bytes(spoilt)


def named() -> Iterator[tuple[str, bytes]]:
    """Yields mutations that random choice might miss."""
    good = content_of(AGE).decode()
    plain = plain_document(AGE)
    latency = '"latencies_ms": ['
    yield "empty", b""
    yield "a list", b"[]"
    yield "null", b"null"
    yield "a number", b"1"
    yield "not JSON", b"case,latency\na,1\n"
    yield "not UTF-8", good.replace('"fp32"', '"\xff"', 1).encode("latin-1")
    yield "UTF-16", good.encode("utf-16")
    yield "byte order mark", b"\xef\xbb\xbf" + good.encode()
    yield "something behind", good.encode() + b"{}"
    yield "NaN", good.replace(latency, latency + "NaN, ", 1).encode()
    yield "infinite", good.replace(latency, latency + "-Infinity, ", 1).encode()
    yield "too large a number", good.replace(latency, latency + "1e999, ", 1).encode()
    yield "many digits", good.replace(latency, latency + "9" * 5000 + ", ", 1).encode()
    yield "a name twice", good.replace('"status":', '"status": "ok", "status":', 1).encode()
    yield (
        "nested deeply",
        good.replace("{", '{"deep": ' + "[" * 9000 + "]" * 9000 + ",", 1).encode(),
    )
    yield "nested too deeply", b"[" * 200_000
    yield "half a surrogate pair", good.replace('"fp32"', '"\\ud800"', 1).encode()
    yield "a newer schema", json.dumps(plain | {"schema_version": 2}).encode()
    yield "an old schema", json.dumps(plain | {"schema_version": 0}).encode()
    yield "no runs", json.dumps(plain | {"runs": []}).encode()
    twice = plain["benchmarks"] + plain["benchmarks"][:1]
    yield "a result twice", json.dumps(plain | {"benchmarks": twice}).encode()
    wrong = copy.deepcopy(plain)
    wrong["benchmarks"][0]["status"] = "wrong_output"
    yield "a wrong output with a speed", json.dumps(wrong).encode()
    yield "no results", json.dumps(plain | {"benchmarks": []}).encode()


READERS: dict[str, Callable[[Path, Path], list[str]]] = {
    "show": lambda file, _: ["show", str(file)],
    "compare old": lambda file, good: ["compare", str(file), str(good)],
    "compare new": lambda file, good: ["compare", str(good), str(file), "--json"],
    "noise floor": lambda file, good: ["doctor", "--noise-floor", str(good), str(file)],
    "report": lambda file, _: [*REPORT, str(file)],
    "report --baseline": lambda file, good: [*REPORT, str(good), "--baseline", str(file)],
    "report --history": lambda file, good: [*REPORT, str(good), "--history", str(file)],
    "history import": lambda file, _: [
        *("history", "import", str(file), "--db", str(file.parent / "history.db"))
    ],
    "explain": lambda file, _: ["explain", str(file), "nobody", "--no-profiling"],
    "repro": lambda file, _: ["repro", str(file), "none of these"],
    **{
        f"export {name}": lambda file, _, name=name: ["export", str(file), "--format", name, *TO]
        for name in EXPORTS
        if name not in ("asv", "parquet")  # which write files
    },
    "run -o": lambda file, _: [*RUN, "-o", str(file)],
    "run --resume": lambda file, _: [*RUN, "-o", str(file), "--resume"],
}
TO = ["-o", "-"]
REPORT = ["report", "--markdown", "-"]
RUN = ["run", "-name", CASE, "--backend", "jax_xla", "-device", "host-cpu", "-iter", "1"]


@pytest.fixture(scope="module")
def prepared() -> list[tuple[str, bytes]]:
    found = dict(mutations())
    assert len(set(found.values())) >= COUNT - 20
    assert len(found) >= 300
    return list(found.items())


@pytest.fixture
def quick(monkeypatch):
    """Disables measurements, plots and searches, so that only readers of the file run."""
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    monkeypatch.setattr(cli, "hold_standard_streams", lambda: None)
    monkeypatch.setattr("comparative_benchmark.cli.commands.doctor.examine", lambda _: [])
    monkeypatch.setattr("comparative_benchmark.engine.runner.python_environment", list)
    monkeypatch.setattr(
        "comparative_benchmark.engine.runner.Preparation.run", lambda *_: pytest.fail("measured")
    )


# Each reader gets another fifth by default, so all mutations meet some reader.
@pytest.mark.parametrize("parts", [5, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("reader", READERS)
def test_a_damaged_file_is_refused_in_one_line_or_does_no_harm(
    reader, parts, prepared, tmp_path, root, capsys, quick
):
    good, file = tmp_path / "good.json", tmp_path / "damaged.json"
    good.write_bytes(content_of(AGE))
    refused = valid = 0
    for name, content in prepared[list(READERS).index(reader) % parts :: parts]:
        file.write_bytes(content)
        is_valid = loads(file)
        valid += is_valid
        # Runs would measure; of the others a tenth shows that they work.
        if is_valid and (reader.startswith(("run", "repro", "explain")) or valid % 10):
            continue
        before = {path.name for path in tmp_path.iterdir()}
        code = cli.main(READERS[reader](file, good))
        out, err = capsys.readouterr()
        assert file.read_bytes() == content, name
        if is_valid:
            assert code in GOOD, (name, code, err)
            continue
        refused += 1
        lines = err.splitlines()
        assert code == 1, (name, code, out, err)
        assert len(lines) == 1, (name, err)
        assert lines[0].startswith("cbs: "), (name, err)
        assert "damaged.json" in lines[0], (name, err)
        assert err.isprintable() or err.rstrip("\n").isprintable(), (name, err)
        # The check of plug-ins writes into the artifact root once per process.
        extra = {path.name for path in tmp_path.iterdir()} - before - {root.name}
        assert not {
            path for path in extra if not path.endswith(".lock") and "history" not in path
        }, name
    assert refused > 150 / parts


def loads(path: Path) -> bool:
    """Whether the API accepts a file; otherwise it prints one line that names the file."""
    try:
        results = cb.load(path)
    except cb.ResultsFileError as error:
        text = str(error)
        assert "\n" not in text
        assert path.name in text
        assert len(text) < 1000
        return False
    assert str(results)
    return True
