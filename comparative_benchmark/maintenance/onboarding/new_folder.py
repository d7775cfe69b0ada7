"""`cbs new-model --torchbench NAME`: writes a model folder that runs as it is."""

import string
from pathlib import Path

_TEMPLATES = Path(__file__).parent / "templates" / "torchbench"


def new_files(name: str) -> dict[Path, str]:
    """Returns the content of each file of a new folder, by its path beside others."""
    fields = {"name": name, "title": name.replace("_", " ").capitalize()}
    return {
        Path(name) / template.stem: string.Template(
            template.read_text(encoding="utf-8")
        ).substitute(fields)
        for template in sorted(_TEMPLATES.glob("*.txt"))
    }
