"""Paths of a pack."""

import fnmatch
import os
import pathlib
import shutil
import subprocess
import tempfile

from . import CommandFailedError


class XPath(type(pathlib.Path())):  # type: ignore[misc]  # the class of this system
    """A path that can copy and remove trees."""

    def rm(self) -> None:
        """Removes the file or the folder, if it exists."""
        if self.is_dir() and not self.is_symlink():
            shutil.rmtree(self)
        else:
            self.unlink(missing_ok=True)

    def copy(self, destination: "str | pathlib.Path") -> None:
        """Copies the file or the folder."""
        if self.is_dir():
            shutil.copytree(self, destination, dirs_exist_ok=True)
        else:
            shutil.copy(self, destination)

    def sub(self, pattern: str, replacement: str) -> None:
        """Replaces a text in the file."""
        self.write_text(self.read_text().replace(pattern, replacement))

    def clone_subtree(self, remote: str, commit: str, subtree: "str | None" = None) -> None:
        """Writes a commit or branch of a git repository, or a folder of it, into this folder.

        Raises:
          CommandFailedError: it cannot be fetched; the message ends with git's last output.
        """
        with tempfile.TemporaryDirectory() as temporary:
            source = XPath(temporary) / "source"
            _git("clone", "--quiet", "--no-checkout", remote, str(source))
            _git("-C", str(source), "checkout", "--quiet", commit)
            shutil.rmtree(source / ".git")
            (source / subtree if subtree else source).copy(self)

    def merge_into(self, destination: "str | pathlib.Path", manifest: str = "") -> None:
        """Copies the entries of a manifest, as `/folder/` or `/file`; everything without one."""
        names = [line.strip().strip("/") for line in manifest.splitlines() if line.strip()]
        for path in sorted(self.iterdir()):
            if not names or any(fnmatch.fnmatch(path.name, name) for name in names):
                path.copy(pathlib.Path(destination) / path.name)


def _git(*arguments: str) -> None:
    # A prompt for a password would never be answered.
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(
            ["git", *arguments], capture_output=True, text=True, check=False, env=environment
        )
    except OSError as error:
        raise CommandFailedError(f"cannot start git: {error}") from error
    if done.returncode:
        words = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise CommandFailedError(f"git {arguments[0]}: {words}")
