"""Paths of a pack."""

import pathlib
import shutil


class XPath(type(pathlib.Path())):  # type: ignore[misc]  # the class of this system
    """A path that can copy and remove trees."""

    def rm(self) -> None:
        """Removes the file or the folder; nothing happens if there is none."""
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
