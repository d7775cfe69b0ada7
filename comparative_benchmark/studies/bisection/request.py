"""Runs a bisection as requested, with any kind of oracle."""

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from comparative_benchmark.analysis.machine.host import cpu_model
from comparative_benchmark.analysis.machine.worker_settings import recorded_variables
from comparative_benchmark.errors import UsageError
from comparative_benchmark.studies.bisection import candidates
from comparative_benchmark.studies.bisection.bisection import Bisection, Journal, Outcome, as_json
from comparative_benchmark.studies.bisection.candidates import Installer, PipInstaller, Repository
from comparative_benchmark.studies.bisection.environments import (
    EnvironmentPool,
    Recipes,
    companions_of,
)
from comparative_benchmark.studies.bisection.racing import sought_threshold
from comparative_benchmark.studies.bisection.search import Candidate, Oracle

STATE = "bisection.json"


@attrs.frozen(kw_only=True)
class BisectRequest:
    """The subject of a bisection, and its settings.

    Raises `UsageError` if the package or the repository is not fully specified.

    Attributes:
      good, bad: versions or commits that are known to be good and bad.
      package: package to bisect by release; with `git`, the package that `build` installs.
      git: repository whose commits to bisect.
      build: shell command that installs a commit.
      build_timeout_s: time limit of `build`.
      pre: whether to include pre-releases between the ends.
      companion: packages to upgrade in lockstep, as NAME or NAME==VERSION; None for the built-in
        companions of the package.
      python: interpreter for the environments; None for this one.
      keep: maximum number of environments on disk, including the ends.
      metric: what became worse.
      threshold: relative change below which a candidate is good; None for half of the change
        between the ends.
      attempts: attempts for an unclear candidate, each with twice the processes.
      everything: whether to judge every candidate.
      output: folder for state, results and environments; None for the default.
    """

    good: str
    bad: str
    package: str | None = None
    git: Path | None = None
    build: str | None = None
    build_timeout_s: float = 3600.0
    pre: bool = False
    companion: Sequence[str] | None = None
    python: str | None = None
    keep: int = 4
    metric: str = "latency"
    threshold: float | None = None
    attempts: int = 2
    everything: bool = False
    output: Path | None = None

    def __attrs_post_init__(self) -> None:
        if self.git is None and self.package is None:
            raise UsageError("specify what to bisect: --package NAME, or --git REPO --build CMD")
        if (self.git is None) != (self.build is None):
            raise UsageError("--git REPO and --build CMD must be given together")

    @property
    def subject(self) -> str:
        """The package, or else the name of the repository."""
        return self.package or (self.git or Path()).resolve().name


@attrs.frozen(kw_only=True)
class Subject:
    """Properties of one kind of bisection.

    Attributes:
      lock: text of the requirements of all environments, apart from the candidate.
      question: inputs that determine the answers, apart from candidates and environments.
      noise: smaller relative changes are ignored.
      oracle: creates the oracle from the environments, their recipes and a folder.
      name: prefix of the folder's name, if the user specifies none.
    """

    lock: str
    question: Mapping[str, Any]
    noise: float
    oracle: Callable[[EnvironmentPool, Recipes, Path], Oracle]
    name: str = ""


def bisect(
    request: BisectRequest,
    subject: Subject,
    *,
    say: Callable[[str], None],
    installer: Installer | None = None,
) -> Outcome:
    """Bisects, or resumes the same bisection if it was interrupted.

    Args:
      request: what to bisect.
      subject: the kind of bisection.
      say: receives progress messages.
      installer: replaces pip.

    Raises:
      UsageError: options conflict, or an end cannot be judged.
    """
    installer = installer or PipInstaller(request.python)
    repository = None
    if request.git is not None and request.build is not None:
        repository = Repository(
            path=request.git.absolute(), build=request.build, timeout_s=request.build_timeout_s
        )
    companions = companions_of(request.package, request.companion, subject.lock)
    folder = (request.output or _default_folder(request, subject)).absolute()
    pool = EnvironmentPool(
        folder / "environments",
        installer,
        log_dir=folder / "logs",
        python=request.python or sys.executable,
        keep=request.keep,
        say=say,
    )
    recipes = Recipes(
        package=request.package,
        lock=subject.lock,
        companions=companions,
        installer=installer,
        repository=repository,
    )

    with Journal(folder / STATE, _question(request, subject, companions)) as journal:
        if not journal.candidates:
            journal.start(_candidates(request, installer, repository))
        say(_plan(journal))
        outcome = Bisection(
            subject.oracle(pool, recipes, folder),
            journal,
            say=say,
            threshold=lambda bad: request.threshold or sought_threshold(bad, subject.noise),
            attempts=request.attempts,
            everything=request.everything,
        ).run()
        journal.conclude(as_json(outcome))
    say(f"state: {journal.path}")
    return outcome


def _candidates(
    request: BisectRequest, installer: Installer, repository: Repository | None
) -> list[Candidate]:
    if repository is not None:
        return repository.commits_between(request.good, request.bad)
    assert request.package is not None
    return candidates.releases_between(
        request.package,
        request.good,
        request.bad,
        # The ends may be pre-releases even if those between them are excluded.
        installer.versions(request.package, prereleases=True),
        prereleases=request.pre,
    )


def _question(
    request: BisectRequest, subject: Subject, companions: Mapping[str, str | None]
) -> Mapping[str, Any]:
    """Returns all inputs that determine the answers; a state file is valid only for these."""
    return {
        **subject.question,
        "package": request.package,
        "git": str(request.git.absolute()) if request.git else None,
        "build": request.build,
        "good": request.good,
        "bad": request.bad,
        "prereleases": request.pre,
        "metric": request.metric,
        "threshold": request.threshold,
        "companions": companions,
        "requirements": subject.lock.splitlines(),
        "python": request.python,
        "machine": cpu_model(),
        "variables": recorded_variables(os.environ),
    }


def _default_folder(request: BisectRequest, subject: Subject) -> Path:
    parts = (subject.name, request.subject, request.good, request.bad)
    name = "-".join(part for part in parts if part)
    return Path("results") / "bisect" / re.sub(r"[^\w.+-]+", "_", name)


def _plan(journal: Journal) -> str:
    """Returns a line about the remaining work."""
    good, *between, bad = journal.candidates
    kind = "commit" if good.is_commit else "release"
    line = (
        f"{good.short} .. {bad.short}: {len(between)} {kind}{_s(between)} in between, "
        f"about {len(between).bit_length() + 2} comparisons (more with --everything)"
    )
    if done := journal.comparisons:
        line += f"; resuming after {len(done)} comparison{_s(done)}"
    return line


def _s(items: Sequence[Any]) -> str:
    return "" if len(items) == 1 else "s"
