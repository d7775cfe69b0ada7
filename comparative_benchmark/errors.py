"""Mistakes of users, and exit codes."""

from pathlib import Path

EXIT_OK, EXIT_FAILED, EXIT_WRONG, EXIT_MISSING, EXIT_INTERRUPTED = 0, 1, 2, 3, 130
# The results so far are fine, but the budget ran out; `--resume` continues.
EXIT_UNFINISHED = 4
# The exit code that shells report for a program ended by SIGPIPE.
EXIT_NO_READER = 141
# Descriptions for users, in the reference documentation.
EXIT_CODES = {
    EXIT_OK: "success",
    EXIT_FAILED: "something failed, or the command line is invalid",
    EXIT_WRONG: "an output is wrong, a comparison found a regression, or a check found a fault",
    EXIT_MISSING: "nothing could be measured, or data is missing",
    EXIT_UNFINISHED: "no failures, but the budget ran out; `--resume` continues the run",
    EXIT_INTERRUPTED: "interrupted by Ctrl-C or SIGTERM; finished results are kept",
    EXIT_NO_READER: "the reader closed the output pipe, as in `cbs list | head`",
}


class UsageError(Exception):
    """An argument is invalid; the message lists valid ones."""


def check_place(path: Path, what: str) -> None:
    """Creates the folder of an output file, and checks that the file can be written.

    Raises:
      UsageError: it cannot, or a directory has its name; this is better known before hours of
        measurements.
    """
    import tempfile

    try:
        if path.is_dir():
            raise UsageError(f"{what} {path} cannot be written: it is a directory")
        path.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise UsageError(
            f"{what} {path} cannot be written: {error.strerror} ({path.parent})"
        ) from error
