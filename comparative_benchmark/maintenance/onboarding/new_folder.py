"""`cbs new-model --torchbench NAME`: creates a runnable model folder."""

import string
from pathlib import Path

_TEMPLATES = Path(__file__).parent / "templates" / "torchbench"


def new_files(name: str) -> dict[Path, str]:
    """Returns the contents of the files in a new folder, by relative path."""
    fields = {"name": name, "title": name.replace("_", " ").capitalize()}
    return {
        Path(name) / template.stem: string.Template(
            template.read_text(encoding="utf-8")
        ).substitute(fields)
        for template in sorted(_TEMPLATES.glob("*.txt"))
    }
