"""Git commits as candidates: lists, checks out and builds them."""

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

import attrs

from comparative_benchmark.studies.bisection.oracle import BisectError, Candidate, UnjudgeableError

_PATIENCE_S = 600.0


@attrs.frozen(kw_only=True)
class Repository:
    """A local git repository; commits are checked out into worktrees, not in place.

    Attributes:
      path: the repository, bare or not.
      build: shell command that installs a commit into the environment; it runs in the worktree,
        with `python` and `pip` of that environment first on the path.
      timeout_s: time limit for the build command.
    """

    path: Path
    build: str
    timeout_s: float = 3600.0

    def commits_between(self, good: str, bad: str) -> list[Candidate]:
        """Returns the commits from the good to the bad one, along first parents, oldest first.

        A merge counts as one commit, because the main line was never built at the merged commits.

        Raises:
          BisectError: an end is not a commit, or the good one is not an ancestor of the bad one.
        """
        first, last = self._commit("--good", good), self._commit("--bad", bad)
        if first == last:
            raise BisectError(f"--good {good} and --bad {bad} are the same commit")
        if self._git("merge-base", "--is-ancestor", first, last).returncode:
            raise BisectError(f"--good {good} is not an ancestor of --bad {bad}")
        listed = self._git(
            *("log", "--first-parent", "--reverse", "--format=%H%x09%cs %s", f"{first}..{last}")
        )
        if listed.returncode:
            raise BisectError(f"git log failed: {listed.stderr.strip()}")
        rows = [line.split("\t", 1) for line in listed.stdout.splitlines()]
        later = [Candidate(name=row[0], detail=row[1][:80], is_commit=True) for row in rows]
        return [Candidate(name=first, is_commit=True), *later]

    def check_out(self, commit: str, folder: Path) -> None:
        """Creates a worktree of a commit.

        Raises:
          UnjudgeableError: git fails.
        """
        # A worktree removed by hand is still registered.
        self._git("worktree", "prune")
        added = self._git("worktree", "add", "--detach", "--force", str(folder), commit)
        if added.returncode:
            raise UnjudgeableError(f"git worktree add failed: {added.stderr.strip()}")

    def remove(self, folder: Path) -> None:
        """Removes a worktree that `check_out` created."""
        self._git("worktree", "remove", "--force", "--force", str(folder))
        shutil.rmtree(folder, ignore_errors=True)
        self._git("worktree", "prune")

    def build_into(self, venv: Path, source: Path, log_file: Path) -> None:
        """Runs the build command.

        Raises:
          UnjudgeableError: it failed or timed out; its processes have been killed.
        """
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONHOME"}
        variables |= {
            "VIRTUAL_ENV": str(venv),
            "PATH": os.pathsep.join([str(venv / "bin"), variables.get("PATH", os.defpath)]),
            "PYTHON": str(venv / "bin" / "python"),
        }
        log_file.parent.mkdir(parents=True, exist_ok=True)
        with log_file.open("w", encoding="utf-8") as log:
            process = subprocess.Popen(
                ["sh", "-euc", self.build],
                cwd=source,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
            try:
                code = process.wait(timeout=self.timeout_s)
            except subprocess.TimeoutExpired:
                reason = f"the build took longer than {self.timeout_s:g} s"
                raise UnjudgeableError(f"{reason} (log: {log_file})") from None
            finally:
                _end_group(process)
        if code:
            lines = log_file.read_text(encoding="utf-8", errors="replace").split("\n")
            last = next((line for line in reversed(lines) if line.strip()), "no output")
            raise UnjudgeableError(f"the build failed: {last.strip()[:300]} (log: {log_file})")

    def _commit(self, option: str, name: str) -> str:
        if name.startswith("-"):
            raise BisectError(f"{option} {name!r} is not a commit")
        asked = self._git("rev-parse", "--quiet", "--verify", f"{name}^{{commit}}")
        if asked.returncode:
            known = self._git("rev-parse", "--git-dir")
            if known.returncode:
                said = known.stderr.strip()
                raise BisectError(f"--git {self.path} is not a git repository: {said}")
            raise BisectError(f"{option} {name}: no such commit in {self.path}; fetch it first")
        return asked.stdout.strip()

    def _git(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                ["git", "-C", str(self.path), *arguments],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_PATIENCE_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BisectError(f"cannot run git: {error}") from error


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Kills remaining processes in the process group of a build."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
