"""What tables are printed on."""

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.segment import Segment

from openxla.benchmark.text import printable

NO_LIMIT = 1000


class Screen(Console):
    """Rich's console for texts of others, whose reader may leave.

    Brackets in texts are no markup, and control characters do not reach the terminal. A reader that
    has left is told by the exit code, as of other output.
    """

    def __init__(self, **keywords: Any) -> None:
        super().__init__(**{"markup": False, "emoji": False, "highlight": False, **keywords})

    def render(self, *arguments: Any, **keywords: Any) -> Iterator[Segment]:
        """Yields what is printed; the styles' own sequences come later."""
        for segment in super().render(*arguments, **keywords):
            if segment.control is None and not segment.text.isprintable():
                yield segment._replace(text=printable(segment.text))
            else:
                yield segment

    def on_broken_pipe(self) -> None:
        """Raises what Rich would make an exit with 1 of."""
        raise BrokenPipeError


def output_screen() -> Screen:
    """Returns standard output for tables: a pipe has no width, so nothing is wrapped in one."""
    screen = Screen(highlight=False)
    return screen if screen.is_terminal else Screen(highlight=False, width=NO_LIMIT)
