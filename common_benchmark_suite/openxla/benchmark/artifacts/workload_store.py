"""Inputs, truth and reference of a workload, generated once and kept in the local artifact root.

Layout of `<root>/workloads/<workload id>/`:

    manifest.json              sha256 and size of each file, their producer,
                               cost of an iteration, URL if fetched
    inputs/input_0.npy ...     the input arrays for every framework
    truth/output_0.npy ...     outputs of the float64 run
    reference/output_0.npy ... outputs of an op-by-op run in the model's own type
    neighbours/output_1.npy    for outputs of integers or few numbers: float64 outputs on slightly
                               different weights and inputs, along a new first axis
    quantised/....json         noise of recipes, once measured
    second-inputs/, second-truth/, second-reference/, second-neighbours/
                               the same for a second input (see `models.second_input`)
"""

import datetime
import shutil
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import attrs
from attrs import validators

from openxla.benchmark import files, old_names
from openxla.benchmark.artifacts import array_files, strict_json
from openxla.benchmark.artifacts.strict_json import MalformedError, OtherVersionError, Record
from openxla.benchmark.def_types import BenchmarkCase, Workload
from openxla.benchmark.files import sha256_of
from openxla.benchmark.installation import root_dir
from openxla.benchmark.workloads import source_digest

T = TypeVar("T")

MANIFEST_FILE = "manifest.json"
# 2: the reference of a generating model continues with the truth's tokens.
MANIFEST_VERSION = 2

NEIGHBOURS = "neighbours"
# Noise of recipes; not part of the manifest.
QUANTISED = "quantised"
_STEMS = {"inputs": "input", "truth": "output", "reference": "output", NEIGHBOURS: "output"}
# Prefix of folders for the second input.
SECOND = "second-"
# Prefix for a further input while it is compared with the second.
FURTHER = "further-"
INPUT_KINDS = ("inputs", f"{SECOND}inputs")

KINDS = {**_STEMS, **{f"{SECOND}{kind}": stem for kind, stem in _STEMS.items()}}


@attrs.frozen(kw_only=True)
class RouteDifference:
    """An operator for which two implementations give different results.

    Attributes:
      operator: the operator's name, e.g. `Resize`.
      node: name of the node, or of its first output.
      routes: the implementations; the first one's result was used.
      error: largest difference relative to the largest magnitude; None if shapes, types or the
        positions of NaN differ.
    """

    operator: str
    node: str
    routes: tuple[str, ...]
    error: float | None = None

    def __str__(self) -> str:
        size = f"by {self.error:.2g} times the scale" if self.error is not None else _UNMEASURED
        where = f"{self.operator} ({self.node})" if self.node else self.operator
        return f"{' and '.join(self.routes)} differ {size} at {where}"


_UNMEASURED = "in shape, type, integers or the positions of NaN"


@attrs.frozen(kw_only=True)
class TruthCheck:
    """The implementations that computed a truth, and whether they agree.

    Attributes:
      routes: implementations that were compared.
      in_doubt: differences without a majority. If there are any, a plain run is used as the truth.
      outvoted: differences in which two implementations agree, but the third does not.
      unchecked: operators that only one implementation could evaluate.
    """

    routes: tuple[str, ...] = ()
    in_doubt: tuple[RouteDifference, ...] = ()
    outvoted: tuple[RouteDifference, ...] = ()
    unchecked: tuple[str, ...] = ()

    def joined(self, other: "TruthCheck | None") -> "TruthCheck":
        """Returns the combined check of two truths of one program, on two inputs."""
        if other is None:
            return self
        return TruthCheck(
            routes=_united(self.routes, other.routes),
            in_doubt=_united(self.in_doubt, other.in_doubt),
            outvoted=_united(self.outvoted, other.outvoted),
            unchecked=_united(self.unchecked, other.unchecked),
        )


def _united(first: tuple[T, ...], second: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(dict.fromkeys((*first, *second)))


_count = attrs.field(
    default=None, validator=validators.optional([validators.instance_of(int), validators.ge(0)])
)
_text = attrs.field(default=None, validator=validators.optional(validators.instance_of(str)))


@attrs.frozen(kw_only=True)
class WorkloadCost:
    """Arithmetic and minimum memory traffic of one iteration: counted in the model, not measured.

    Attributes:
      flops: floating-point operations of matrix products and convolutions. A multiply-add counts
        as two, and products with padding count, too: the usual "model FLOPs" (Chowdhery et al.
        2022, "PaLM", appendix B). Sums, norms and activations are not counted: frameworks
        implement them differently, but the count must be the same for all implementations.
      bytes: size of the weights read, inputs and outputs, each counted once in the model's own
        type. For a weight that is only indexed (an embedding), only the rows used count. No
        program moves less, unless weights stay in a cache between iterations.
      flops_source, bytes_source: how each value was counted, or why this was not possible.
    """

    flops: int | None = _count
    flops_source: str | None = _text
    bytes: int | None = _count
    bytes_source: str | None = _text

    @classmethod
    def unknown(cls, reason: str) -> "WorkloadCost":
        """Returns a cost that could not be counted."""
        return cls(flops_source=reason, bytes_source=reason)

    @classmethod
    def counted(cls, flops: int, size_bytes: int, *, of: str) -> "WorkloadCost":
        """Returns a cost counted from a form of the model, such as its jaxpr."""
        return cls(
            flops=flops,
            flops_source=f"{of}: matrix products and convolutions",
            bytes=size_bytes,
            bytes_source=f"{of}: weights read, inputs and outputs, each counted once",
        )


_UNKNOWN_COST = WorkloadCost()


class ArtifactError(RuntimeError):
    """Artifacts are missing or damaged; the message names them and the remedy."""


class FileFacts(Record, frozen=True, kw_only=True):
    """Expected digest and size of a file."""

    sha256: str
    size_bytes: int

    @classmethod
    def of(cls, path: Path) -> "FileFacts":
        """Returns the digest and size of a file."""
        return cls(sha256=sha256_of(path), size_bytes=path.stat().st_size)


class Producer(Record, frozen=True, kw_only=True):
    """The producer of a workload's artifacts: the implementation of a case, with versions."""

    benchmark_name: str
    module_path: str | None = None
    source_sha256: str
    versions: Mapping[str, str]


class TruthSource(Record, frozen=True, kw_only=True):
    """The backend that computed a truth.

    Attributes:
      backend: the backend's name; empty if the model's definition specifies the reference function.
      distribution: the Python distribution that provides the reference function.
      built_in: whether this is the suite's own distribution, whose references take precedence.
    """

    backend: str
    distribution: str
    built_in: bool


class WorkloadManifest(Record, frozen=True, kw_only=True):
    """Metadata of a workload's files.

    Attributes:
      workload: its fields.
      producer: what made them.
      files: digest and size by path.
      date: when they were made; empty if they were published without a date.
      cost: fields of a `WorkloadCost`; empty in old manifests.
      fetched: model, URL and sha256 of the manifest that they were fetched by; None if they were
        made here.
      without_second: why a second input is missing, or which outputs it does not verify; None if
        it verifies all, and in old manifests.
      not_ranked: why programs of the model are not ranked; None if they may be.
      without_float64: why the truth is not a float64 run; None if it is.
      truth_source: backend and distribution that computed the truth; None in old manifests.
      truth_check: how the truth was checked by a second implementation; None if it was not.
      truth_remark: parts of the float64 run that are computed in fewer bits; None if none are.
    """

    workload: dict[str, Any]
    producer: Producer
    files: dict[str, FileFacts]
    date: str = ""
    cost: dict[str, Any] = {}
    fetched: dict[str, str] | None = None
    without_second: str | None = None
    without_float64: str | None = None
    truth_source: TruthSource | None = None
    not_ranked: str | None = None
    truth_check: TruthCheck | None = None
    truth_remark: str | None = None
    manifest_version: int = MANIFEST_VERSION

    def __post_init__(self) -> None:
        if not isinstance(self.workload.get("digest"), str):
            raise TypeError("the workload's digest is not a string")
        strict_json.check_names(self.files, MANIFEST_FILE)
        WorkloadCost(**self.cost)


@attrs.frozen(kw_only=True)
class Due:
    """An input, and the expected outputs of a run on it.

    Attributes:
      inputs: arrays in order.
      truth: float64 outputs in order.
      reference: same-type outputs in order.
      neighbours: files of outputs that have neighbours, named by the index of the output.
    """

    inputs: list[Path]
    truth: list[Path]
    reference: list[Path]
    neighbours: list[Path] = attrs.field(factory=list)

    @property
    def neighbours_by_output(self) -> dict[int, Path]:
        """Files of neighbours by index of their output."""
        return {int(path.stem.rpartition("_")[2]): path for path in self.neighbours}


@attrs.frozen(kw_only=True)
class WorkloadArtifacts:
    """The verified files of one workload."""

    directory: Path
    manifest: WorkloadManifest

    @property
    def inputs(self) -> list[Path]:
        """Input arrays in order."""
        return self._listed("inputs")

    @property
    def truth(self) -> list[Path]:
        """Float64 outputs in order."""
        return self._listed("truth")

    @property
    def reference(self) -> list[Path]:
        """Same-type outputs in order."""
        return self._listed("reference")

    @property
    def first(self) -> Due:
        """The input that is timed, and its expected outputs."""
        return Due(**{kind: self._listed(kind) for kind in _STEMS})

    @property
    def second(self) -> Due | None:
        """The second input and its expected outputs; None without one."""
        files = Due(**{kind: self._listed(f"{SECOND}{kind}") for kind in _STEMS})
        return files if files.inputs and files.truth and files.reference else None

    @property
    def second_files(self) -> list[Path]:
        """All files of the second input."""
        # `astuple` yields the lists of inputs, truth, reference and neighbours.
        kinds = attrs.astuple(self.second, recurse=False) if self.second else ()
        return [path for paths in kinds for path in paths]

    @property
    def without_second(self) -> str | None:
        """Why a second input is missing, or which outputs it leaves unverified; None if none."""
        if self.second is not None:
            return self.manifest.without_second
        return self.manifest.without_second or "these artifacts predate second inputs"

    def _listed(self, kind: str) -> list[Path]:
        """Returns the files of a kind that the manifest lists; other files are ignored."""
        paths = array_files.numbered(self.directory / kind, KINDS[kind])
        return [path for path in paths if f"{kind}/{path.name}" in self.manifest.files]

    @property
    def cost(self) -> WorkloadCost:
        """Cost of an iteration; all None if it was not counted."""
        return WorkloadCost(**self.manifest.cost)

    @property
    def without_float64(self) -> str | None:
        """Why the truth is not a float64 run; None if it is."""
        return self.manifest.without_float64

    @property
    def truth_source(self) -> TruthSource | None:
        """Backend and distribution that computed the truth; None if not recorded."""
        return self.manifest.truth_source

    @property
    def not_ranked(self) -> str | None:
        """Why programs of the model are not ranked; None if they may be."""
        return self.manifest.not_ranked

    @property
    def made_by(self) -> str | None:
        """Module of the model that made the truth, by its present name."""
        made_by = self.manifest.producer.module_path
        return made_by and old_names.present_name(made_by)

    @property
    def truth_check(self) -> TruthCheck | None:
        """How the truth was checked by a second implementation; None if it was not."""
        return self.manifest.truth_check

    @property
    def origin(self) -> dict[str, str] | None:
        """Model, URL and sha256 of the manifest for fetched artifacts; None if they were made here.

        The sha256 identifies the artifacts exactly.
        """
        return self.manifest.fetched

    @property
    def digests(self) -> dict[str, str]:
        """sha256 of each file, by its path in the directory."""
        return {name: facts.sha256 for name, facts in self.manifest.files.items()}


def directories() -> Path:
    """Returns the folder that holds the directories of all workloads."""
    return root_dir() / "workloads"


def directory_of(workload: Workload) -> Path:
    """Returns the directory for the artifacts of a workload."""
    return directories() / workload.id


def find(workload: Workload, *, locked: Collection[str] = frozenset()) -> WorkloadArtifacts | None:
    """Returns the artifacts of a workload; None if they are missing or outdated.

    Artifacts made here are valid while the source of the implementation that made them is unchanged
    and they include a second input, if the model can have one. Fetched artifacts are valid while
    their publication is locked. Some models share their workload with no other, and may get weights
    from their framework's own generator. Their artifacts also require an unchanged framework
    version.

    Args:
      workload: the workload.
      locked: sha256 of the manifests in lock files.

    Raises:
      ArtifactError: the artifacts exist, but are damaged.
    """
    directory = directory_of(workload)
    if not (directory / MANIFEST_FILE).is_file():
        return None
    try:
        manifest = strict_json.read(directory / MANIFEST_FILE, WorkloadManifest)
    except OtherVersionError:
        return None
    except MalformedError as error:
        raise ArtifactError(f"{error}; run again with --generate-artifacts") from error
    producer = manifest.producer
    is_locked = (manifest.fetched or {}).get("manifest_sha256") in locked
    if (
        manifest.workload["digest"] != workload.digest
        or not (is_locked or producer.source_sha256 == source_digest(producer.module_path))
        or other_versions(workload, producer.versions)
        or not (is_locked or _records_second(manifest))
    ):
        return None
    for name, facts in manifest.files.items():
        path = directory / name
        if not path.is_file() or FileFacts.of(path) != facts:
            problem = "does not match the manifest" if path.is_file() else "is missing"
            raise ArtifactError(
                f"artifacts in {directory}: {name} {problem}; run again with --generate-artifacts"
            )
    return WorkloadArtifacts(directory=directory, manifest=manifest)


def due_in(directory: Path, prefix: str = SECOND) -> Due:
    """Returns an input and its expected outputs from a directory without a manifest."""
    folders = {kind: directory / f"{prefix}{kind}" for kind in _STEMS}
    return Due(**{kind: array_files.numbered(path, _STEMS[kind]) for kind, path in folders.items()})


def remove_second(directory: Path, prefix: str = SECOND) -> None:
    """Removes the files of a second input from a directory without a manifest."""
    for kind in _STEMS:
        shutil.rmtree(directory / f"{prefix}{kind}", ignore_errors=True)


def replace_second(directory: Path) -> None:
    """Renames the further input to be the second one, in a directory without a manifest."""
    remove_second(directory)
    for kind in _STEMS:
        if (folder := directory / f"{FURTHER}{kind}").is_dir():
            folder.rename(directory / f"{SECOND}{kind}")


def _records_second(manifest: WorkloadManifest) -> bool:
    return manifest.without_second is not None or any(map(is_second, manifest.files))


def is_second(name: str) -> bool:
    """Returns whether a file in a manifest belongs to the second input."""
    return name.startswith(SECOND)


def new_directory(workload: Workload) -> AbstractContextManager[Path]:
    """Yields an empty directory to fill and describe, then moves it to its final place.

    If another process was faster, this replaces equal content.
    """
    return files.new_directory(directory_of(workload))


def publish(
    directory: Path,
    *,
    workload: Workload,
    case: BenchmarkCase,
    versions: Mapping[str, str],
    cost: WorkloadCost = _UNKNOWN_COST,
    without_second: str | None = None,
    without_float64: str | None = None,
    truth_source: TruthSource | None = None,
    not_ranked: str | None = None,
    truth_check: TruthCheck | None = None,
    truth_remark: str | None = None,
) -> WorkloadArtifacts:
    """Writes the manifest of a directory; returns the artifacts at their final place.

    Args:
      directory: from `new_directory`, with `inputs`, `truth` and `reference` in it, and the second
        input's.
      workload: the workload.
      case: the case whose implementation made them.
      versions: versions of the packages that made them.
      cost: cost of an iteration.
      without_second: why a second input is missing; None if it exists.
      without_float64: why the truth is not a float64 run; None if it is.
      truth_source: backend and distribution that computed the truth.
      not_ranked: why programs of the model are not ranked; None if they may be.
      truth_check: how the truth was checked by a second implementation; None if it was not.
      truth_remark: parts of the float64 run that are computed in fewer bits; None if none are.
    """
    module_path = case.model.model_impl.module_path
    manifest = WorkloadManifest(
        workload=attrs.asdict(workload),
        producer=Producer(
            benchmark_name=case.name,
            module_path=module_path,
            source_sha256=source_digest(module_path),
            versions=dict(versions),
        ),
        cost=attrs.asdict(cost),
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        files={
            f"{kind}/{path.name}": FileFacts.of(path)
            for kind, stem in KINDS.items()
            for path in array_files.numbered(directory / kind, stem)
        },
        without_second=without_second,
        without_float64=without_float64,
        truth_source=truth_source,
        not_ranked=not_ranked,
        truth_check=truth_check,
        truth_remark=truth_remark,
    )
    return describe(directory, workload, manifest)


def describe(directory: Path, workload: Workload, manifest: WorkloadManifest) -> WorkloadArtifacts:
    """Writes a manifest into a directory; returns the artifacts at their final place."""
    (directory / MANIFEST_FILE).write_bytes(strict_json.to_bytes(manifest))
    return WorkloadArtifacts(directory=directory_of(workload), manifest=manifest)


def other_versions(workload: Workload, versions: Mapping[str, str]) -> dict[str, str | None]:
    """Returns packages whose installed version differs, if that changes the truth.

    Only a model that shares its workload with no other may have weights from its framework's own
    generator. The result has the installed versions, None for packages that are not installed.
    """
    if workload.inputs:
        return {}
    here = {package: _version(package) for package in versions}
    return {package: version for package, version in here.items() if version != versions[package]}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
