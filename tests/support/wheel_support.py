"""Wheels made by hand: releases of packages for tests that have no index but a folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from zipfile import ZipFile

_KIND = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def make_wheel(
    folder: Path, name: str, version: str, files: Mapping[str, str], *, requires: Sequence[str] = ()
) -> Path:
    """Writes a wheel of pure Python files and returns its path."""
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {requirement}" for requirement in requires]
    content = {**files, f"{info}/METADATA": "\n".join([*lines, ""]), f"{info}/WHEEL": _KIND}
    record = "".join(f"{path},,\n" for path in [*content, f"{info}/RECORD"])
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}-py3-none-any.whl"
    with ZipFile(path, "w") as wheel:
        for member, text in {**content, f"{info}/RECORD": record}.items():
            wheel.writestr(member, text)
    return path
