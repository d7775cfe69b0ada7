#!/usr/bin/env python3
"""Reads what a pull request asks to be measured from its text, and prints it as `cbs run` takes it.

A line of the text says `RUN_BENCHMARK: NAME [BACKENDS]`, e.g. `RUN_BENCHMARK: BERT_TINY_FP32_JAX
jax_xla`: NAME is the start of names of models, BACKENDS are as in `cbs run --backend`.
`torchbench/NAME` is the start of names of TorchBench's folders, `bench/NAME` a benchmark of a
milabench configuration. The text is anybody's: what is printed holds letters, digits, `_`, and in
backends `:+,-`, and nothing else.

The text is read from standard input; three lines are printed: the expression for `-name` (the name,
of a milabench benchmark), the backends (empty where none are named), and the kind of the name:
`models`, `torchbench` or `bench`. Exit code: 0, 3 if nothing is asked for, 1 if what is asked for
cannot be.
"""

import re
import sys

_ASKS = "RUN_BENCHMARK:"
_REQUEST = re.compile(
    r"(?:(torchbench|bench)/)?([A-Za-z0-9_]{1,100})(?:[ \t]+([a-z][a-z0-9_:+,-]{0,199}))?"
)
_EXPRESSIONS = {"models": "models/{}.*/.+DEFAULT", "torchbench": "{}.*", "bench": "{}"}


class RequestError(Exception):
    """What is asked for cannot be; the message says what can."""


def request_of(text: str) -> tuple[str, str, str] | None:
    """Returns what a text asks for, as printed; None if it asks for nothing.

    Raises:
      RequestError: it asks in a way that cannot be.
    """
    # A template's explanation is not a request.
    stripped = [line.strip(" \t\r") for line in without_comments(text).split("\n")]
    lines = list(
        dict.fromkeys(
            line.removeprefix(_ASKS).strip(" \t\r") for line in stripped if line.startswith(_ASKS)
        )
    )
    if not lines:
        return None
    if len(lines) > 1:
        raise RequestError(f"{len(lines)} different RUN_BENCHMARK lines; keep one")
    match = _REQUEST.fullmatch(lines[0])
    if match is None:
        raise RequestError(
            "write RUN_BENCHMARK: NAME [BACKENDS]; NAME is the beginning of model names, in "
            "letters, "
            "digits and _ (or torchbench/NAME, bench/NAME); example of BACKENDS: "
            "jax_xla,pt_inductor:eager"
        )
    kind = match[1] or "models"
    return _EXPRESSIONS[kind].format(match[2]), match[3] or "", kind


def without_comments(text: str) -> str:
    """Returns a text without its comments, in time that grows with its length alone."""
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
    """Prints what standard input asks for."""
    try:
        request = request_of(sys.stdin.read())
    except RequestError as error:
        print(error, file=sys.stderr)
        return 1
    if request is None:
        print("the text has no RUN_BENCHMARK: NAME [BACKENDS] line", file=sys.stderr)
        return 3
    print("\n".join(request))
    return 0


if __name__ == "__main__":
    sys.exit(main())
