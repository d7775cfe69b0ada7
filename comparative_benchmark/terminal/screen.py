"""What tables are printed on."""

from rich.console import Console


class Screen(Console):
    """Rich's console, whose reader may leave: that is told by the exit code, as of other output."""

    def on_broken_pipe(self) -> None:
        """Raises what Rich would make an exit with 1 of."""
        raise BrokenPipeError
