#!/usr/bin/env python3
"""Counts the product's code, and compares the counts with the limits in pyproject.toml.

    python scripts/code_size.py                  counts, and their limits in [tool.code_size]
    python scripts/code_size.py --revision REV   counts of a commit, for comparison
    python scripts/code_size.py --packages       code lines and modules of each package

A code line contains a token that is not in an import, a docstring or a comment. A small module has
fewer than 60 physical lines; `__init__`, entry points, models and operators are not counted. The
limit on modules per package excludes models and operators. It also excludes `provided`, `host` and
`host_install`, because other projects determine their file names. The fleet has its own budget,
`fleet_lines`. Exits with 1 if a count exceeds its limit. Limits only fall: lower them with each
change that lowers a count.
"""

import argparse
import ast
import io
import subprocess
import sys
import tarfile
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("comparative_benchmark", "common_benchmark_suite/openxla", "userbenchmark")
SMALL = 60
MODULES = 15
_ENTRY_POINTS = ("__init__.py", "__main__.py", "run_benchmarks.py")
_MANY_FILES = ("models", "operators", "provided", "host", "host_install")
_FLEET = {"fleet", "fleet.py", "nodes.py", "slow_nodes.py"}
_NO_CODE = frozenset(
    {
        *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
        *(tokenize.ENCODING, tokenize.ENDMARKER),
    }
)


def code_lines(source: str) -> int:
    """Returns the number of code lines in a module."""
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            value = body[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                left_out.update(range(value.lineno, (value.end_lineno or value.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - left_out)


def files_of_the_tree() -> Iterator[tuple[PurePosixPath, str]]:
    """Yields paths and content of the product's modules in the working tree."""
    listed = subprocess.run(
        ["git", "ls-files", "--", *PRODUCT], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        if name.endswith(".py") and (ROOT / name).is_file():
            yield PurePosixPath(name), (ROOT / name).read_text()


def files_of(revision: str) -> Iterator[tuple[PurePosixPath, str]]:
    """Yields paths and content of the product's modules in a commit."""
    command = ["git", "archive", revision, "--", *PRODUCT]
    archive = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            if member.name.endswith(".py") and (file := tar.extractfile(member)):
                yield PurePosixPath(member.name), file.read().decode()


def main() -> int:
    """Prints the counts; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--revision", help="commit to count, instead of the working tree")
    parser.add_argument("--packages", action="store_true", help="list all packages")
    options = parser.parse_args()
    found = files_of(options.revision) if options.revision else files_of_the_tree()
    code, modules, small, physical, fleet = Counter[str](), Counter[str](), 0, 0, 0
    for path, source in found:
        package, lines = str(path.parent), source.count("\n")
        if _FLEET & set(path.parts):
            fleet += code_lines(source)
            continue
        code[package] += code_lines(source)
        modules[package] += 1
        physical += lines
        is_exempt = path.name in _ENTRY_POINTS or not {"models", "operators"}.isdisjoint(path.parts)
        small += lines < SMALL and not is_exempt
    large = {
        name: count
        for name, count in modules.items()
        if count > MODULES and set(PurePosixPath(name).parts).isdisjoint(_MANY_FILES)
    }
    if options.packages:
        for name, lines in code.most_common():
            print(f"{lines:6} lines {modules[name]:3} modules  {name}")
    counts = {
        "code_lines": code.total(),
        "files": modules.total(),
        "small_modules": small,
        "large_packages": len(large),
        "fleet_lines": fleet,
    }
    limits = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["code_size"]
    for name, count in counts.items():
        print(f"{name:>15} {count:6}   limit {limits[name]}")
    print(f"physical lines  {physical}")
    for name, count in large.items():
        print(f"more than {MODULES} modules: {name} ({count})")
    exceeded = [name for name, count in counts.items() if count > limits[name]]
    if exceeded and not options.revision:
        print(f"over the limit: {', '.join(exceeded)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
