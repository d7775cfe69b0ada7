"""What tables are printed on."""

from rich.console import Console

NO_LIMIT = 1000


class Screen(Console):
    """Rich's console, whose reader may leave: that is told by the exit code, as of other output."""

    def on_broken_pipe(self) -> None:
        """Raises what Rich would make an exit with 1 of."""
        raise BrokenPipeError


def output_screen() -> Screen:
    """Returns standard output for tables: a pipe has no width, so nothing is wrapped in one."""
    screen = Screen(highlight=False)
    return screen if screen.is_terminal else Screen(highlight=False, width=NO_LIMIT)
