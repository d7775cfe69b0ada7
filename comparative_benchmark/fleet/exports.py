"""Writes a fleet for sites that start jobs themselves: ReFrame, GitHub Actions, Kubernetes.

An exported folder is a spool with a plan and batches, and a file that starts `cbs fleet node` for
each batch. `cbs fleet collect --exported FOLDER` merges the results.
"""

import hashlib
import json
import os
import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import attrs

from comparative_benchmark.errors import UsageError
from comparative_benchmark.fleet.description import Fleet, MachineClass
from comparative_benchmark.fleet.features import Requirement
from comparative_benchmark.fleet.planning import Plan, batches_of, save_plan
from comparative_benchmark.fleet.spool import Batch, Spool
from comparative_benchmark.maintenance.onboarding.ci_template import for_workflow, requirement
from openxla.benchmark import synonyms
from openxla.benchmark.files import new_directory

_TEMPLATES = Path(__file__).parent / "templates"
# GitHub refuses a larger matrix.
_LARGEST_MATRIX = 256
# Time for a runner to install the suite.
_INSTALLING_MINUTES = 30
# Where pods see the exported folder, and the claim of the volume that contains it.
_MOUNT, _VOLUME = "/fleet", "cbs-fleet"
_SHARE = "common-benchmark-suite/share"
_QUANTITY = re.compile(r"([a-z0-9][a-z0-9./-]*)=(\d+(?:\.\d+)?(?:m|[kMGTP]i?)?)")
_LABEL = re.compile(r"(?:[a-z0-9.-]{1,253}/)?[A-Za-z0-9](?:[\w.-]{0,61}[A-Za-z0-9])?", re.ASCII)
# Labels of Node Feature Discovery and of NVIDIA's operator.
_CPUID = "feature.node.kubernetes.io/cpu-cpuid."
_LABELS = {
    "avx2": f"{_CPUID}AVX2",
    "avx512": f"{_CPUID}AVX512F",
    "avx512_vnni": f"{_CPUID}AVX512VNNI",
    "avx512_bf16": f"{_CPUID}AVX512BF16",
    "amx": f"{_CPUID}AMXTILE",
    "neon": f"{_CPUID}ASIMD",
    "sve": f"{_CPUID}SVE",
    "smt": "feature.node.kubernetes.io/cpu-hardware_multithreading",
    "nvidia": "nvidia.com/gpu.present",
    "arch": "kubernetes.io/arch",
}
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@attrs.frozen(kw_only=True)
class Exporting:
    """A fleet to export.

    Attributes:
      fleet: the fleet.
      batches: its batches; `<class>.<number>`, with numbers from 0.
      folder: the exported folder.
      install: requirement for pip to install the suite on GitHub's runners; None for this revision.
      image: container image with the suite, for Kubernetes.
    """

    fleet: Fleet
    batches: Sequence[Batch]
    folder: Path
    install: str | None = None
    image: str | None = None

    def of_class(self, machine_class: MachineClass) -> list[Batch]:
        """Returns the batches of a class."""
        return [batch for batch in self.batches if batch.machine_class == machine_class.name]


def export_fleet(
    fleet: Fleet,
    plan: Plan,
    target: str,
    folder: Path,
    *,
    install: str | None = None,
    image: str | None = None,
) -> Path:
    """Writes a folder with a plan, its batches and the file of another tool; returns that file.

    Args:
      fleet: the fleet.
      plan: its jobs.
      target: one of `TARGETS`.
      folder: the folder, which must not exist or be empty.
      install: see `Exporting`.
      image: see `Exporting`.

    Raises:
      UsageError: the folder has files, or the target cannot express the fleet.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} already exists; choose a new folder with -o")
    batches = _batches(fleet, plan, target)
    name, content = TARGETS[target]
    text = content(
        Exporting(fleet=fleet, batches=batches, folder=folder, install=install, image=image)
    )
    try:
        with new_directory(folder) as directory:
            spool = Spool(directory)
            spool.create()
            save_plan(spool.plan_file, plan)
            for batch in batches:
                spool.write_batch(batch)
            (directory / "FLEET.toml").write_bytes(fleet.path.read_bytes())
            (directory / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror or error}") from error
    return folder / name


def _batches(fleet: Fleet, plan: Plan, target: str) -> list[Batch]:
    numbers: Counter[str] = Counter()
    batches = []
    for jobs in batches_of(fleet, plan.jobs):
        machine_class = fleet.machine_class(jobs[0].machine_class)
        name = machine_class.name
        batches.append(
            Batch(
                name=f"{name}.{numbers[name]}",
                fleet=fleet.name,
                campaign=plan.campaign,
                machine_class=name,
                engine=target,
                share=machine_class.share,
                host=machine_class.host,
                time_limit_s=machine_class.time_limit_s,
                canaries=fleet.canaries,
                jobs=tuple(job.work() for job in jobs),
            )
        )
        numbers[name] += 1
    return batches


def reframe_check(exporting: Exporting) -> str:
    """Returns a ReFrame check: a test for each class, with its batches as parameter."""
    text = (_TEMPLATES / "reframe_check.py.txt").read_text(encoding="utf-8")
    for number, item in enumerate(exporting.fleet.classes):
        names = [batch.name for batch in exporting.of_class(item)]
        suffix = re.sub(r"\W", "_", item.name)
        fields = {
            "descr": f"fleet {exporting.fleet.name}, class {item.name}",
            "valid_systems": [_reframe_systems(item, each) for each in item.requires] or ["*"],
            "exclusive_access": item.share == "node",
            "time_limit": f"{item.time_limit_s}s",
            # The shell expands a tilde only outside quotes.
            "executable": re.sub(
                r"^'~/", "~/'", shlex.quote(_python(item.environment or sys.executable))
            ),
        }
        lines = [f"    {name} = {value!r}" for name, value in fields.items()]
        lines.append(f"    batch = parameter({names!r})")
        text += "\n\n" + "\n".join(
            ["@rfm.simple_test", f"class Fleet{number}_{suffix}(FleetBatch):", *lines]
        )
        text += "\n"
    return text


def _python(environment: str) -> str:
    """Returns the interpreter of an environment, which may exist only on the other machines."""
    path = PurePosixPath(environment)
    return environment if path.name.startswith("python") else str(path / "bin" / "python")


def _reframe_systems(machine_class: MachineClass, requirement: Requirement) -> str:
    names = [*requirement.present, *requirement.absent, *dict(requirement.properties)]
    if wrong := [name for name in names if not re.fullmatch(r"\w[-.\w]*", name)]:
        raise UsageError(f"class {machine_class.name}: {wrong[0]!r} is not a valid ReFrame feature")
    return " ".join(requirement.text.split()) or "*"


def github_workflow(exporting: Exporting) -> str:
    """Returns a workflow with a matrix over batches, and a job that collects.

    Raises:
      UsageError: there are too many batches, or GitHub would evaluate a string.
    """
    batches = exporting.batches
    if len(batches) > _LARGEST_MATRIX:
        raise UsageError(
            f"{len(batches)} batches exceed the limit of {_LARGEST_MATRIX} for a GitHub matrix; "
            "increase batch_minutes and time_limit"
        )
    matrix = []
    for item in exporting.fleet.classes:
        if options := [label for label in item.access if label.startswith("-")]:
            raise UsageError(
                f"class {item.name}: access {options[0]!r} is not a GitHub runner label"
            )
        labels = [json.loads(for_workflow(label)) for label in item.access]
        matrix += [
            {
                "batch": batch.name,
                "labels": labels or ["self-hosted", item.name],
                "minutes": item.time_limit_s // 60 + _INSTALLING_MINUTES,
            }
            for batch in exporting.of_class(item)
        ]
    fields = {
        "NAME": for_workflow(f"Fleet {exporting.fleet.name}"),
        "FOLDER": for_workflow(_inside_checkout(exporting.folder)),
        "SUITE": for_workflow(exporting.install or requirement(_extras(batches))),
        "BATCHES": json.dumps(matrix),
    }
    text = (_TEMPLATES / "github_workflow.yml.txt").read_text(encoding="utf-8")
    return re.sub(r"@([A-Z]+)@", lambda match: fields[match[1]], text)


def _inside_checkout(folder: Path) -> str:
    """Returns a folder relative to the Git checkout that contains it, or to its parent."""
    place = folder.absolute()
    roots = (parent for parent in place.parents if (parent / ".git").exists())
    return os.path.relpath(place, next(roots, place.parent))


def _extras(batches: Sequence[Batch]) -> str:
    """Returns the extras of the suite that the backends of all jobs need."""
    words = [
        after
        for batch in batches
        for work in batch.jobs
        for option, after in zip(work.arguments, work.arguments[1:], strict=False)
        if option == "--backend"
    ]
    names = {
        synonyms.competitor(name).partition(":")[0] for word in words for name in word.split(",")
    }
    return ",".join(sorted(name.replace("_", "-") for name in names)) or "all"


def kubernetes_jobs(exporting: Exporting) -> str:
    """Returns Indexed Jobs, one for each class; a pod executes one batch.

    Raises:
      UsageError: an image is missing, or a requirement cannot be a label.
    """
    import yaml

    if not exporting.image:
        raise UsageError("--to kubernetes requires --image, a container image with the suite")
    jobs = [_indexed_job(exporting, item) for item in exporting.fleet.classes]
    lines = [f"Written by `cbs fleet export`. The volume claim {_VOLUME} must contain this folder."]
    lines += [
        f"Class {item.name} lists no resources in `access`: other pods can share its nodes."
        for item in exporting.fleet.classes
        if not item.access and item.share == "node"
    ]
    text: str = yaml.safe_dump_all(jobs, sort_keys=False)
    return "".join(f"# {line}\n" for line in lines) + text


def _indexed_job(exporting: Exporting, item: MachineClass) -> dict[str, Any]:
    fleet, batches = exporting.fleet, exporting.of_class(item)
    identity = json.dumps([fleet.name, batches[0].campaign, item.name])
    digest = hashlib.sha256(identity.encode()).hexdigest()[:6]
    slug = re.sub(r"[^a-z0-9]+", "-", f"{fleet.name}-{item.name}".lower())[:40].strip("-")
    container: dict[str, Any] = {
        "name": "batch",
        "image": exporting.image,
        "command": [_python(item.environment or "python")],
        "args": [
            *("-P", "-m", "comparative_benchmark", "fleet", "node"),
            f"{_MOUNT}/batches/{item.name}.$(JOB_COMPLETION_INDEX).json",
        ],
        # Without it, results would name the pod as the node.
        "env": [
            {"name": "CBS_FLEET_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
        ],
        "volumeMounts": [{"name": "fleet", "mountPath": _MOUNT}],
    }
    if resources := _resources(item):
        # Requests follow from limits.
        container["resources"] = {"limits": resources}
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": item.time_limit_s,
        "containers": [container],
        "volumes": [{"name": "fleet", "persistentVolumeClaim": {"claimName": _VOLUME}}],
    }
    if affinity := _affinity(item):
        pod["affinity"] = affinity
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"cbs-{slug}-{digest}"},
        "spec": {
            "completionMode": "Indexed",
            "completions": len(batches),
            "parallelism": len(batches),
            # One batch that always fails must not end the others.
            "backoffLimitPerIndex": fleet.attempts - 1,
            "maxFailedIndexes": len(batches),
            "template": {"metadata": {"labels": {_SHARE: item.share}}, "spec": pod},
        },
    }


def _resources(item: MachineClass) -> dict[str, str]:
    """Returns the resources of a whole node, from the class's `access`."""
    resources = {}
    for text in item.access:
        if (match := _QUANTITY.fullmatch(text)) is None:
            raise UsageError(
                f"class {item.name}: access {text!r} is not a Kubernetes resource like cpu=62"
            )
        resources[match[1]] = match[2]
    return resources


def _affinity(item: MachineClass) -> dict[str, Any]:
    affinity: dict[str, Any] = {}
    terms = [{"matchExpressions": _expressions(item, each)} for each in item.requires]
    # A term without expressions matches no node, and a class with such a requirement all nodes.
    if terms and all(term["matchExpressions"] for term in terms):
        affinity["nodeAffinity"] = {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
        }
    if item.share == "node":
        # Pods of all fleets avoid each other, in all namespaces.
        term = {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchExpressions": [{"key": _SHARE, "operator": "Exists"}]},
            "namespaceSelector": {},
        }
        affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return affinity


def _expressions(item: MachineClass, requirement: Requirement) -> list[dict[str, Any]]:
    def label(name: str) -> str:
        label_name = _LABELS.get(name, name)
        if not _LABEL.fullmatch(label_name):
            raise UsageError(f"class {item.name}: {name!r} is not a valid Kubernetes label")
        return label_name

    # Every node has a CPU.
    present = sorted(requirement.present - {"cpu"})
    expressions: list[dict[str, Any]] = [
        {"key": label(name), "operator": "Exists"} for name in present
    ]
    expressions += [
        {"key": label(name), "operator": "DoesNotExist"} for name in sorted(requirement.absent)
    ]
    for name, value in requirement.properties:
        wanted = _ARCHITECTURES.get(value, value) if name == "arch" else value
        expressions.append({"key": label(name), "operator": "In", "values": [wanted]})
    return expressions


TARGETS: dict[str, tuple[str, Callable[[Exporting], str]]] = {
    "reframe": ("fleet_check.py", reframe_check),
    "github": ("workflow.yml", github_workflow),
    "kubernetes": ("jobs.yaml", kubernetes_jobs),
}
