#!/usr/bin/env python3
"""Writes the JSON Schema of results files from the classes that define them.

`scripts/results_schema.py` writes it; `--check` exits with 1 if the file in the package differs.
"""

import json
import sys

from comparative_benchmark.results.results_file import SCHEMA_FILE, schema


def main() -> int:
    """Writes or compares the schema; returns the exit code."""
    text = json.dumps(schema(), indent=1) + "\n"
    if sys.argv[1:] == ["--check"]:
        same = SCHEMA_FILE.read_text(encoding="utf-8") == text
        print("the schema is up to date" if same else f"{SCHEMA_FILE} is out of date")
        return 0 if same else 1
    SCHEMA_FILE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
