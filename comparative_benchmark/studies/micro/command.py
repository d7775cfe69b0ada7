"""`cbs micro`: lists operators and shapes, and imports the slower modules for a sweep on demand."""

import argparse
import json

from comparative_benchmark.backends import recipes
from comparative_benchmark.studies.micro import shapes
from comparative_benchmark.terminal.options import EXIT_OK
from openxla.benchmark import operators


def run(options: argparse.Namespace) -> int:
    """Runs a subcommand and returns the exit code.

    Raises:
      UsageError: an option is invalid.
    """
    if options.action == "list":
        return _list(options)
    from comparative_benchmark.studies.micro import sweep

    return sweep.run(options)


def _list(options: argparse.Namespace) -> int:
    found = {
        "operators": {name: item.description for name, item in operators.operators().items()},
        "shapes": {name: _described(name) for name in shapes.NAMES},
        "recipes": {item.usage: item.description for item in recipes.recipes().values()},
    }
    if options.json:
        print(json.dumps(found, indent=2))
        return EXIT_OK
    for title, lines in found.items():
        print(title)
        width = max(map(len, lines))
        for name, description in lines.items():
            print(f"  {name:<{width}}  {description}")
    return EXIT_OK


def _described(name: str) -> str:
    if name == shapes.CUSTOM:
        return "MxKxN, e.g. 64x128x256"
    found = shapes.named(name)
    return f"{len(found)}: {found[0]} to {found[-1]}"
