"""A model's checkpoint as part of what is published, and back into the place where models look.

The files of the type `checkpoint` lie below `checkpoint/`, or are one `.tgz` archive; the
checkpoint's own manifest is among them, which says of which recipe it is, or of which revision of a
repository, and the sha256 of each file.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from openxla.benchmark.artifacts import archives
from openxla.benchmark.artifacts.fetch_options import FetchedModel
from openxla.benchmark.artifacts.manifest import ArtifactFile
from openxla.benchmark.artifacts.published_files import link, sha256_of
from openxla.benchmark.artifacts.stores.errors import StoreError
from openxla.benchmark.artifacts.workload_store import ArtifactError
from openxla.benchmark.def_types import BenchmarkCase
from openxla.benchmark.models import architectures, checkpoints
from openxla.benchmark.models.checkpoints import MANIFEST_FILE

CHECKPOINT_TYPE = "checkpoint"
_FOLDER = "checkpoint"
_REPAIR = "publish and lock it again, or run with --generate-artifacts"
# Weights of the largest models of the suite, with room to spare.
_LIMITS = archives.Limits(total_bytes=256 << 30)


def is_missing(case: BenchmarkCase) -> bool:
    """Returns whether a case's model has a checkpoint that is not here."""
    target = directory_of(case)
    return target is not None and not (target / MANIFEST_FILE).is_file()


def directory_of(case: BenchmarkCase) -> Path | None:
    """Returns where the checkpoint of a case's model belongs; None where it has none.

    Raises:
      DefinitionError: the architecture or a parameter does not exist.
    """
    if case.model.model_impl.architecture is None:
        return None
    architecture = architectures.get(case.model.model_impl.architecture)
    return checkpoints.directory_of(
        architecture, architecture.complete(case.model.model_parameters)
    )


def add_to(directory: Path, checkpoint: Path, *, date: str) -> list[ArtifactFile]:
    """Copies a checkpoint into a directory that is to be published; returns its entries."""
    entries = []
    for source in sorted(path for path in checkpoint.rglob("*") if path.is_file()):
        target = directory / _FOLDER / source.relative_to(checkpoint)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        entries.append(
            ArtifactFile(
                path=target.relative_to(directory).as_posix(),
                artifact_type=CHECKPOINT_TYPE,
                sha256=sha256_of(target),
                size_bytes=target.stat().st_size,
                producers={},
                date=date,
            )
        )
    return entries


def install(fetched: FetchedModel, *, url: str, case: BenchmarkCase) -> Path | None:
    """Puts a model's checkpoint from a publication into its place, unless one is there.

    Args:
      fetched: the publication, with its files of `CHECKPOINT_TYPE`.
      url: where it is published.
      case: a case of the model.

    Returns:
      where it is; None if the publication holds none, or the model has none.

    Raises:
      ArtifactError: it is another checkpoint than the model's, or damaged.
    """
    target, where = directory_of(case), f"{fetched.manifest.model} at {url}"
    if target is None:
        return None
    if (target / MANIFEST_FILE).is_file():
        return target
    with _contents(fetched, where) as files:
        if MANIFEST_FILE not in files:
            return None
        digests = _checked_digests(case, files[MANIFEST_FILE], where)
        with checkpoints.new_directory(target) as directory:
            for name, sha256 in digests.items():
                if name not in files or sha256_of(files[name]) != sha256:
                    raise ArtifactError(
                        f"{where}: {name} of the checkpoint is not what its manifest describes; "
                        f"{_REPAIR}"
                    )
                link(files[name], directory / name)
            link(files[MANIFEST_FILE], directory / MANIFEST_FILE)
    return target


@contextmanager
def _contents(fetched: FetchedModel, where: str) -> Iterator[dict[str, Path]]:
    """Gives the files of a checkpoint by their names in it."""
    paths = [f.path for f in fetched.manifest.files if f.artifact_type == CHECKPOINT_TYPE]
    packed = [path for path in paths if path.endswith((".tgz", ".tar.gz"))]
    if not packed:
        prefix = f"{_FOLDER}/"
        yield {path.removeprefix(prefix): fetched.files[path] for path in paths}
        return
    parent = fetched.directory.parents[2] / "unpacked"
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".checkpoint-", dir=parent) as scratch:
        target = Path(scratch) / _FOLDER
        try:
            members = archives.unpack(fetched.files[packed[0]], target, limits=_LIMITS)
        except StoreError as error:
            raise ArtifactError(f"{where}: {error}; {_REPAIR}") from error
        # The directory may have been packed with its name, or without.
        tops = [path.parent for path in members if path.name == MANIFEST_FILE]
        top = min(tops, key=lambda path: len(path.parts), default=target)
        yield {
            path.relative_to(top).as_posix(): path for path in members if path.is_relative_to(top)
        }


def _checked_digests(case: BenchmarkCase, manifest: Path, where: str) -> Mapping[str, str]:
    """Returns the sha256 of each file of a checkpoint that is the one that a case needs."""
    assert case.model.model_impl.architecture is not None
    architecture = architectures.get(case.model.model_impl.architecture)
    due = checkpoints.facts_of(architecture, architecture.complete(case.model.model_parameters))
    try:
        found = json.loads(manifest.read_text(encoding="utf-8"))
        differing = sorted(key for key, value in due.items() if found.get(key) != value)
        digests = {str(name): str(facts["sha256"]) for name, facts in found["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(
            f"{where}: the checkpoint's manifest is malformed: {type(error).__name__}: {error}; "
            f"{_REPAIR}"
        ) from error
    if differing:
        key = differing[0]
        raise ArtifactError(
            f"{where} is locked, but holds another checkpoint: its {key} is {found.get(key)!r}, "
            f"where {case.model.name} has {due[key]!r}; {_REPAIR}"
        )
    return digests
