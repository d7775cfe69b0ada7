#!/usr/bin/env python3
"""Reads a benchmark request from the text of a pull request, and prints it for `cbs run`.

The text contains a line `RUN_BENCHMARK: NAME [BACKENDS]`, e.g. `RUN_BENCHMARK: BERT_TINY_FP32_JAX
jax_xla`. NAME is the beginning of model names. BACKENDS are as in `cbs run --backend`.
`torchbench/NAME` is the beginning of names of TorchBench's folders, `bench/NAME` a benchmark of a
milabench configuration, and `userbenchmark/NAME` a userbenchmark. The prefix `userbenchmark/` can
be omitted.

`RUN_TORCHBENCH: NAMES [BACKENDS]` is TorchBench's own line. NAMES are userbenchmarks, or models:
whole names of TorchBench's folders, separated by commas, or ALL. The variable CBS_TORCHBENCH is the
path of a checkout of TorchBench, or of folders in one. NAMES can also be its userbenchmarks.

Every user can write the text. The output therefore takes only letters, digits, `_` and `-` from it,
and `:+,-` in backends. The script adds the rest of the expression, such as `|` between names.

The script reads standard input and prints three lines: the expression for `-name` (or the name of a
milabench benchmark, or names of userbenchmarks), the backends (empty by default), and the kind of
the name: `models`, `torchbench`, `bench` or `userbenchmark`. Exit code: 0, 3 if the text has no
request, 1 if the request is not valid.

    pr_request.py --folder-of NAME

prints the folder of a userbenchmark in CBS_TORCHBENCH. It prints nothing if this checkout has the
userbenchmark, since each side of a comparison then runs its own version.
"""

import difflib
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

_ASKS = "RUN_BENCHMARK:"
_ASKS_TORCHBENCH = "RUN_TORCHBENCH:"
_NAME = r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}"
_BACKENDS = r"(?:[ \t]+([a-z][a-z0-9_:+,-]{0,199}))?"
_REQUEST = re.compile(rf"(?:(torchbench|bench|userbenchmark)/)?({_NAME}){_BACKENDS}")
_TORCHBENCH_REQUEST = re.compile(
    rf"({_NAME}(?:[ \t]{{0,9}},[ \t]{{0,9}}{_NAME}){{0,99}}){_BACKENDS}"
)
_EXPRESSIONS = {
    "models": "models/{}.*/.+DEFAULT",
    "torchbench": "{}.*",
    "bench": "{}",
    "userbenchmark": "{}",
}
_ROOT = Path(__file__).resolve().parents[1]
_ALL = "ALL"
_SHOWN = 12


class RequestError(Exception):
    """The request is not valid; the message explains valid ones."""


def request_of(text: str) -> tuple[str, str, str] | None:
    """Returns the printed lines for a text; None without a request.

    Raises:
      RequestError: the request is not valid.
    """
    # A template's explanation is not a request.
    stripped = [line.strip(" \t\r") for line in without_comments(text).split("\n")]
    lines = list(
        dict.fromkeys(
            (asks, line.removeprefix(asks).strip(" \t\r"))
            for line in stripped
            for asks in (_ASKS, _ASKS_TORCHBENCH)
            if line.startswith(asks)
        )
    )
    if not lines:
        return None
    if len(lines) > 1:
        kinds = " and ".join(sorted({asks.rstrip(":") for asks, _ in lines}))
        raise RequestError(f"{len(lines)} different {kinds} lines; keep one")
    [(asks, asked)] = lines
    return _request(asked) if asks == _ASKS else _torchbench_request(asked)


def _request(asked: str) -> tuple[str, str, str]:
    match = _REQUEST.fullmatch(asked)
    if match is None:
        raise RequestError(
            "write RUN_BENCHMARK: NAME [BACKENDS]; NAME is the beginning of model names, in "
            "letters, "
            "digits and _ (or torchbench/NAME, bench/NAME, userbenchmark/NAME); example of "
            "BACKENDS: jax_xla,pt_inductor:eager"
        )
    kind, name, backends = match[1], match[2], match[3] or ""
    found = userbenchmarks()
    if kind == "userbenchmark" or (kind is None and name in found):
        if name not in found:
            raise RequestError(f"RUN_BENCHMARK: {_unknown(name, found, ())}")
        return name, backends, "userbenchmark"
    kind = kind or "models"
    if "-" in name:
        raise RequestError(
            f"RUN_BENCHMARK: {name} is not the beginning of a model name, which has no '-'; "
            f"{_userbenchmarks_are(found)}"
        )
    return _EXPRESSIONS[kind].format(name), backends, kind


def _torchbench_request(asked: str) -> tuple[str, str, str]:
    match = _TORCHBENCH_REQUEST.fullmatch(asked)
    if match is None:
        raise RequestError(
            "write RUN_TORCHBENCH: NAMES [BACKENDS]; NAMES are userbenchmarks, or models of "
            "TorchBench, with commas between them"
        )
    names = list(dict.fromkeys(name.strip(" \t") for name in match[1].split(",")))
    backends = match[2] or ""
    found, models = userbenchmarks(), torchbench_models()
    if set(names) <= set(found):
        return "|".join(names), backends, "userbenchmark"
    unknown = [name for name in names if name not in (*found, *models, _ALL)]
    if unknown or (_ALL in names and not models):
        raise RequestError(f"RUN_TORCHBENCH: {_unknown((unknown or [_ALL])[0], found, models)}")
    if of_both := [name for name in names if name in found and name not in models]:
        raise RequestError(
            f"RUN_TORCHBENCH: {of_both[0]} is a userbenchmark, but not all of the names are; name "
            "either userbenchmarks or models"
        )
    return ".+" if _ALL in names else "|".join(names), backends, "torchbench"


def _unknown(name: str, found: Iterable[str], models: Iterable[str]) -> str:
    known = [*found, *models]
    close = difflib.get_close_matches(name, known, 1)
    meant = f"; did you mean {close[0]}?" if close else ""
    listed = _userbenchmarks_are(found)
    shown = ", ".join(list(models)[:_SHOWN]) + (", ..." if len(list(models)) > _SHOWN else "")
    folders = f"models are {shown}" if shown else "CBS_TORCHBENCH names no folder with models"
    return f"no userbenchmark or model {name!r}{meant}; {listed}; {folders}"


def _userbenchmarks_are(found: Iterable[str]) -> str:
    return f"userbenchmarks are {', '.join(found) or 'none'}"


def userbenchmarks() -> dict[str, Path]:
    """Returns the userbenchmarks of this checkout and of CBS_TORCHBENCH, and their folders."""
    places = [_ROOT, *_checkouts()]
    return {
        path.name: path.parent
        for place in reversed(places)  # ours go before others
        for path in _packages(place / "userbenchmark", "__init__.py", "run.py")
    }


def torchbench_models() -> list[str]:
    """Returns the names of the model folders in CBS_TORCHBENCH."""
    given = os.environ.get("CBS_TORCHBENCH")
    if not given:
        return []
    inside = ("", "models", "torchbenchmark/models", "torchbenchmark/canary_models")
    found = {
        path.name
        for at in inside
        for path in _packages(Path(given) / at, "__init__.py")
        if b"Model" in (path / "__init__.py").read_bytes()
    }
    own = [Path(given).name] if (Path(given) / "__init__.py").is_file() else []
    return sorted({*found, *own})


def _checkouts() -> list[Path]:
    """Returns possible roots of a TorchBench checkout; CBS_TORCHBENCH may be inside one."""
    given = os.environ.get("CBS_TORCHBENCH")
    if not given:
        return []
    place = Path(given).resolve()
    return [place, *(at.parent for at in (place, *place.parents) if at.name == "torchbenchmark")]


def _packages(folder: Path, *files: str) -> list[Path]:
    if not folder.is_dir():
        return []
    return [
        path
        for path in sorted(folder.iterdir())
        if re.fullmatch(_NAME, path.name) and any((path / file).is_file() for file in files)
    ]


def without_comments(text: str) -> str:
    """Returns a text without its comments, in linear time."""
    kept, rest = [], text
    while "-->" in rest:
        before, opened, rest = rest.partition("<!--")
        kept.append(before)
        if not opened:
            break
        comment, closed, after = rest.partition("-->")
        if not closed:
            kept.append(opened + comment)
        rest = after
    return "".join(kept) + rest


def main() -> int:
    """Prints the request in standard input."""
    if sys.argv[1:2] == ["--folder-of"]:
        folder = userbenchmarks().get("".join(sys.argv[2:3]))
        print(folder if folder and folder.parent != _ROOT else "")
        return 0
    try:
        request = request_of(sys.stdin.read())
    except RequestError as error:
        print(error, file=sys.stderr)
        return 1
    if request is None:
        print(
            "the text has no RUN_BENCHMARK: NAME [BACKENDS] line and no RUN_TORCHBENCH: NAMES line",
            file=sys.stderr,
        )
        return 3
    print("\n".join(request))
    return 0


if __name__ == "__main__":
    sys.exit(main())
