"""TFLite files in the local artifact root.

<root>/tflite/<JAX model>-<precision>-<digest>/   files converted by the suite, named after
    model_int8.tflite                             a digest of everything that affects their bytes
    manifest.json
<root>/published/<host>/<path of the URL>         published files, which users put there
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from openxla.benchmark.files import new_directory, sha256_of
from openxla.benchmark.models.architectures.base import digest_of
from openxla.benchmark.models.checkpoints import CheckpointError
from openxla.benchmark.models.tflite.model_uri import ModelUri
from openxla.benchmark.root import root_dir

MANIFEST_FILE = "manifest.json"


class DamagedFileError(RuntimeError):
    """A stored file does not match its manifest; the message gives the remedy."""


@attrs.frozen(kw_only=True)
class TfLiteFile:
    """A TFLite file on this machine.

    Attributes:
      path: its path.
      sha256, size_bytes: digest and size of its content.
      origin: `converted`, or `published`.
      notes: details of the conversion, e.g. versions of the packages; plain JSON values.
    """

    path: Path
    sha256: str
    size_bytes: int
    origin: str
    notes: Mapping[str, Any]


def published(uri: ModelUri) -> TfLiteFile:
    """Returns the published file of an address.

    Raises:
      CheckpointError: the file is not in the artifact root; the message gives the expected path.
    """
    path = root_dir() / "published" / uri.text.removeprefix("https://")
    if not uri.is_published:
        raise CheckpointError(
            f"{uri.text} is not a published file; use the seeded checkpoint (the default), or a "
            "URL that begins with https://"
        )
    if not path.is_file():
        raise CheckpointError(
            f"the published file {uri.text} is missing, and the suite does not fetch it; put it "
            f"into {path}, or use the seeded checkpoint (the default)"
        )
    return _described(path, origin="published", notes={})


def converted(
    uri: ModelUri, recipe: Mapping[str, Any], make: Callable[[Path], Mapping[str, Any]]
) -> TfLiteFile:
    """Returns the file of a recipe, making it on first use.

    If several processes make the same file, each writes its own folder, and the first to finish
    renames it to the final name.

    Args:
      uri: address of the file.
      recipe: everything that affects its bytes, as plain JSON values.
      make: writes the file to the given path and returns notes for the manifest.

    Raises:
      DamagedFileError: the file exists, but has changed.
    """
    digest = digest_of(recipe)
    target = root_dir() / "tflite" / f"{uri.source}-{uri.precision}-{digest[:16]}"
    if not (target / MANIFEST_FILE).is_file():
        _write(target, uri, recipe, make)
    manifest = json.loads((target / MANIFEST_FILE).read_text(encoding="utf-8"))
    found = _described(target / uri.file, origin="converted", notes=manifest["notes"])
    if found.sha256 != manifest["sha256"]:
        raise DamagedFileError(f"{found.path} does not match its manifest; remove {target}")
    return found


def _write(
    target: Path,
    uri: ModelUri,
    recipe: Mapping[str, Any],
    make: Callable[[Path], Mapping[str, Any]],
) -> None:
    with new_directory(target, whole_with=MANIFEST_FILE) as directory:
        notes = make(directory / uri.file)
        made = _described(directory / uri.file, origin="converted", notes=notes)
        manifest = {
            "model_uri": uri.text,
            "recipe": dict(recipe),
            "notes": dict(notes),
            "sha256": made.sha256,
            "size_bytes": made.size_bytes,
        }
        text = json.dumps(manifest, indent=2, sort_keys=True) + "\n"
        (directory / MANIFEST_FILE).write_text(text, encoding="utf-8")


def _described(path: Path, *, origin: str, notes: Mapping[str, Any]) -> TfLiteFile:
    sha256 = sha256_of(path)
    size_bytes = path.stat().st_size
    return TfLiteFile(path=path, sha256=sha256, size_bytes=size_bytes, origin=origin, notes=notes)
