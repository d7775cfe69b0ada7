"""Links from the page to what profilers left beside the results."""

import os
import urllib.parse
from collections.abc import Mapping
from pathlib import Path, PurePath

import attrs
from msgspec import UNSET

from comparative_benchmark.report.columns import Json
from comparative_benchmark.results.kept_profiles import SUFFIX
from comparative_benchmark.results.record import Result


@attrs.frozen
class Profiles:
    """Where profiles are, as seen from a page.

    Results travel with their profiles as a folder that lies beside the results file; that one is
    looked for first, and then the place where the profiles were written.

    Attributes:
      folders: of the results file of each run.
      page: where the page will be; None for one that links to nothing.
    """

    folders: Mapping[str, Path]
    page: Path | None

    def of(self, result: Result) -> Json | None:
        """Returns the folder, its files with their links, and an error; None without a profile.

        A link is relative to the page. It is None for a file that is not there.
        """
        taken = result.profile
        timeline = result.timeline if isinstance(result.timeline, str) else ""
        if taken is UNSET and not timeline:
            return None
        wanted: list[tuple[str, str]] = []
        if taken:
            wanted = [(name, f"{taken.directory}/{name}") for name in taken.files]
        if timeline:
            wanted.append(("race timeline", timeline))
        return {
            "folder": taken.directory if taken else "",
            "files": [[name, self._link(path, result.run_id)] for name, path in wanted],
            "error": taken.error if taken else None,
        }

    def _link(self, written: str, run_id: str) -> str | None:
        if self.page is None:
            return None
        parts = PurePath(written).parts
        starts = [place for place, part in enumerate(parts) if part.endswith(SUFFIX)]
        # A file that someone else wrote names folders of profiles, and nothing outside of them.
        if not starts or ".." in parts:
            return None
        folder = self.folders.get(run_id)
        beside = [folder.joinpath(*parts[starts[-1] :])] if folder else []
        for path in [*beside, Path(written)]:
            if path.is_file():
                relative = os.path.relpath(path, self.page.absolute().parent)
                return urllib.parse.quote(Path(relative).as_posix())
        return None
