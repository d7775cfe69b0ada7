"""The base package of a model folder, under the name that folders import it by.

What stands here follows what folders of pytorch/benchmark import; none of it is their code.
"""

import os
import sys
from pathlib import Path
from types import TracebackType

# Where the folder's checkout is, or else what the folder is in; see `loading.import_folder`.
REPO_PATH = Path(os.environ.get("CBS_TORCHBENCH_REPO", Path.cwd()))
DATA_PATH = str(REPO_PATH / "torchbenchmark" / "data" / ".data")


class add_path:  # noqa: N801  # its name in folders
    """Has a directory first on the import path inside a `with` block."""

    def __init__(self, path: str) -> None:
        self.path = str(path)

    def __enter__(self) -> None:
        sys.path.insert(0, self.path)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.path in sys.path:
            sys.path.remove(self.path)
