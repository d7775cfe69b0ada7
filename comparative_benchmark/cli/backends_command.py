"""`cbs backends`: lists backends and compilers, and missing packages."""

import argparse
import json

from comparative_benchmark.backends.api import backends
from comparative_benchmark.backends.recipes import recipes
from comparative_benchmark.terminal.listing import list_backends, list_recipes
from comparative_benchmark.terminal.options import EXIT_OK


def run(asked: argparse.Namespace) -> int:
    """Prints backends, compilers and their options, and the recipes; returns 0."""
    if asked.json:
        print(json.dumps({"backends": list_backends(), "recipes": list_recipes()}, indent=2))
        return EXIT_OK
    for backend in backends().values():
        missing = sorted({m for f in backend.modules for m in backend.missing_modules(f)})
        run = backend.absence(missing).commands
        state = f"needs {', '.join(missing)}: run {run}" if missing else "installed"
        print(f"{backend.name} ({', '.join(f.value for f in backend.modules)} models; {state})")
        for compiler in backend.compilers:
            names = [*compiler.options, *(["RECIPE"] if compiler.takes_recipes else [])]
            options = "".join(f" [+{name}]" for name in names)
            print(f"  {backend.name}:{compiler.name}{options}  {compiler.description}")
    print("a RECIPE is one of")
    for recipe in recipes().values():
        where = ", ".join(recipe.by_backend) or "nowhere"
        print(f"  {recipe.usage}  {recipe.description} ({where})")
    return EXIT_OK
