"""Ends copies of the worker that a model makes by `fork()`, where they would go on with our code.

A copy that came back would compute and write what the worker does, into the same files, at a time
of its own, and make a copy of itself at the next call.
"""

import os
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from openxla.benchmark import root

_OURS = tuple(
    f"{place}{os.sep}" for place in (Path(__file__).parents[1], Path(root.__file__).parent)
)
# Where the standard library forks, it ends the copy itself: a trace would but slow it down.
_ENDS_ITSELF = "multiprocessing.popen_fork"


def end_where_we_go_on() -> None:
    """Has each copy that is made from now on end when the model returns to a line of ours."""
    os.register_at_fork(after_in_child=_in_copy)


def _in_copy() -> None:
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # who called fork()
    while frame is not None and not frame.f_code.co_filename.startswith(_OURS):
        if frame.f_globals.get("__name__") == _ENDS_ITSELF:
            return
        frame = frame.f_back
    if frame is None:
        return
    ours = frame

    def follow(at: FrameType, event: str, _: Any) -> None:
        if at is ours or (event == "return" and at.f_back is ours):
            os._exit(0)

    sys.setprofile(follow)
