"""Published programs that compiler-level backends start from, in place of the model."""

from pathlib import Path

from comparative_benchmark.results.record import Status
from comparative_benchmark.runs.published_program import Program
from comparative_benchmark.runs.session import SessionEnded
from comparative_benchmark.runs.trial import Trial
from openxla.benchmark.artifacts.fetch import FetchedModel
from openxla.benchmark.workloads import generated_tokens


def types_for(trial: Trial) -> frozenset[str]:
    """Returns the types of artifacts that a trial may start from, of all alternatives."""
    if _why_not(trial):
        return frozenset()
    ways = trial.competitor.backend.starts_from.get(trial.competitor.compiler.name, ())
    return frozenset(kind for way in ways for kind in way)


def program_of(trial: Trial, fetched: FetchedModel | None, url: str | None) -> Program:
    """Returns the program that a trial starts from.

    Args:
      trial: of a backend that can start from one.
      fetched: what was fetched of its model; None if nothing is.
      url: where that is published; None where the model is not locked.

    Raises:
      SessionEnded: there is none for it; `unsupported`, with the reason.
    """
    if reason := _why_not(trial):
        raise _unsupported(reason)
    competitor, model = trial.competitor, trial.case.model.name
    ways = competitor.backend.starts_from.get(competitor.compiler.name, ())
    if not ways:
        possible = ", ".join(competitor.backend.starts_from)
        raise _unsupported(f"{competitor} starts from no published program; {possible} would")
    if url is None:
        raise _unsupported(f"no artifacts of {model} are locked")
    if fetched is None:
        raise _unsupported(f"no program of {model} is in the cache")
    published = {file.artifact_type for file in fetched.manifest.files}
    for way in ways:
        if published.issuperset(way):
            return Program(
                files={kind: _files(fetched, kind) for kind in way},
                origin={
                    "model": model,
                    "url": url,
                    "manifest_sha256": fetched.manifest_sha256,
                },
            )
    needed = ", or ".join(" with ".join(way) for way in ways)
    because = [f for f in fetched.manifest.failures if any(f.artifact_type in w for w in ways)]
    why = f" ({because[0].artifact_type}: {because[0].reason})" if because else ""
    raise _unsupported(f"{model} at {url} was published without {needed}{why}")


def _files(fetched: FetchedModel, kind: str) -> dict[Path, str]:
    return {
        fetched.files[file.path]: file.sha256
        for file in fetched.manifest.files
        if file.artifact_type == kind
    }


def _why_not(trial: Trial) -> str | None:
    accelerator = trial.competitor.compiler.accelerator or "cpu"
    if trial.device.accelerator_type != accelerator:
        return (
            f"{trial.competitor} starts from programs for {accelerator.upper()}s, not for "
            f"{trial.device.name}"
        )
    if generated_tokens(trial.case) is not None:
        return (
            f"{trial.case.model.name} generates, and is verified by running the model on further "
            "inputs, which an exported program does not take"
        )
    return None


def _unsupported(reason: str) -> SessionEnded:
    return SessionEnded(
        Status.UNSUPPORTED, "artifacts", f"{reason}; leave --exported-programs out to export here"
    )
