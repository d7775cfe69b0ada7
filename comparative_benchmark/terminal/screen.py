"""Consoles and fitted tables."""

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import IO, Any

import attrs
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from openxla.benchmark.text import printable

_SPECIAL = re.compile(r"[\\`*\[\]|~]")
# Underscores inside a word are not markup, so names stay unchanged.
_UNDERSCORE = re.compile(r"(?<!\w)_|_(?!\w)")
# On GitHub, `@name` notifies a person and `#1` links to an issue, even after a backslash. An `@`
# inside a word, as in `jax_xla:xla@old`, does not.
_CALL = re.compile(r"((?<!\w)@|#)(?=\w)")

NO_LIMIT = 1000

# The start of a command, at the beginning of a line or after a colon.
_COMMAND = re.compile(r"(?:^|: )\s*(?:\w+=\S* )*(?:\S*/)?(?:cbs|python\S*|pip) ")

Cell = str | Text

# A workload without a column is a line above its rows.
_INDENT = "  "


def escaped(text: str) -> str:
    """Returns the text as one line without markup, links and mentions, for a table cell."""
    text = printable(" ".join(text.split()))
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = _UNDERSCORE.sub(r"\_", _SPECIAL.sub(r"\\\g<0>", text))
    return _CALL.sub("\\1\N{ZERO WIDTH SPACE}", text)


def row(cells: Sequence[str]) -> str:
    """Returns a row of a table; the cells are escaped."""
    return "| " + " | ".join(map(escaped, cells)) + " |"


class Screen(Console):
    """A Rich console for untrusted texts, and for output whose reader may exit.

    Brackets in texts are not markup, and control characters do not reach the terminal. If the
    reader has exited, the exit code reports it, as for other output.
    """

    def __init__(self, **keywords: Any) -> None:
        super().__init__(**{"markup": False, "emoji": False, "highlight": False, **keywords})

    def print(self, *objects: Any, **keywords: Any) -> None:
        """Prints objects; in a terminal, long lines wrap between words unless `soft_wrap` is off.

        Lines with commands, or with words that do not fit, stay whole, so that they can be copied.
        """
        text = " ".join(map(str, objects))
        fits = all(len(word) <= self.width for word in text.split())
        if self.is_terminal and fits and not _COMMAND.search(text):
            keywords["soft_wrap"] = False
        super().print(*objects, **keywords)

    def render(self, *arguments: Any, **keywords: Any) -> Iterator[Segment]:
        """Yields the rendered output, without control characters from the text."""
        for segment in super().render(*arguments, **keywords):
            if segment.control is None and not segment.text.isprintable():
                yield segment._replace(text=printable(segment.text))
            else:
                yield segment

    def on_broken_pipe(self) -> None:
        """Re-raises the error, for which Rich would exit with 1."""
        raise BrokenPipeError


def output_screen(width: int = NO_LIMIT, file: IO[str] | None = None) -> Screen:
    """Returns a file, or else standard output, for tables; in a pipe, lines have this width."""
    screen = Screen(file=file)
    return screen if screen.is_terminal else Screen(file=file, width=width)


@attrs.frozen(kw_only=True)
class Column:
    """A column of a table.

    Attributes:
      heading: heading of the column.
      cells: the cells, one for each row.
      rank: priority; columns of rank 0 are always shown, and the highest rank is dropped first.
      right: whether cells are right-aligned.
      least: width to which a column of long texts may shrink; None for a column of one-line cells.
      without: cells to show instead if another column, named by its heading, is dropped.
    """

    heading: str
    cells: Sequence[Cell]
    rank: int = 0
    right: bool = False
    least: int | None = None
    without: Mapping[str, Sequence[Cell]] = MappingProxyType({})

    @property
    def slack(self) -> int:
        """Number of characters by which the column may shrink."""
        if self.least is None:
            return 0
        longest = max((cell_len(str(cell)) for cell in self.cells), default=0)
        return max(0, longest - max(self.least, len(self.heading)))


@attrs.frozen(kw_only=True)
class FittedTable:
    """A table and its dropped columns.

    Attributes:
      dropped: headings of the columns that do not fit.
      needed: width in characters at which all columns fit.
    """

    table: Table
    dropped: tuple[str, ...]
    needed: int


def fitted(
    columns: Sequence[Column], width: int, *, groups: Sequence[str] = (), group_heading: str = ""
) -> FittedTable:
    """Returns a table of as many columns as fit.

    If all columns fit, the groups are a column. Otherwise, each group is a line above its rows, and
    columns are dropped until the table fits.

    Args:
      columns: columns from left to right; the first one names the rows.
      width: width of the terminal, in characters.
      groups: the group of each row; rows in a group are consecutive. Empty for no groups.
      group_heading: heading of the groups.
    """
    everything = list(columns)
    if groups:
        shown = [name if name != before else "" for name, before in _with_previous(groups)]
        everything.insert(0, Column(heading=group_heading, cells=shown))
    table = _wide(everything, groups)
    needed = _width(table, everything)
    if needed <= width:
        return FittedTable(table=table, dropped=(), needed=needed)
    fitting = list(columns)
    if groups:
        first = fitting[0]
        fitting[0] = attrs.evolve(
            first,
            heading=f"{group_heading}, {first.heading}",
            cells=[Text(_INDENT).append(cell) for cell in first.cells],
            without={
                name: [Text(_INDENT).append(cell) for cell in cells]
                for name, cells in first.without.items()
            },
        )
    dropped: list[str] = []
    table = _narrow(fitting, groups)
    while _width(table, fitting) > width and (optional := [c for c in fitting if c.rank]):
        last = max(optional, key=lambda column: column.rank)
        dropped.append(last.heading)
        fitting = [
            attrs.evolve(column, cells=column.without.get(last.heading, column.cells))
            for column in fitting
            if column is not last
        ]
        table = _narrow(fitting, groups)
    order = [column.heading for column in columns if column.heading in dropped]
    return FittedTable(table=table, dropped=tuple(order), needed=needed)


def ruled_table() -> Table:
    """Returns an empty table with lines between sections, but not between columns."""
    return Table(box=box.HORIZONTALS, pad_edge=False)


def _width(table: Table, columns: Sequence[Column]) -> int:
    # Brackets in names are not markup.
    widest = Screen(width=10 * NO_LIMIT).measure(table).maximum
    return widest - sum(column.slack for column in columns)


def _with_previous(groups: Sequence[str]) -> list[tuple[str, str | None]]:
    return list(zip(groups, [None, *groups], strict=False))


def _wide(columns: Sequence[Column], groups: Sequence[str]) -> Table:
    table = ruled_table()
    _add_columns(table, columns)
    changes = [name != before for name, before in _with_previous(groups)]
    for number, cells in enumerate(zip(*(column.cells for column in columns), strict=True)):
        if number and changes and changes[number]:
            table.add_section()
        table.add_row(*cells)
    return table


def _narrow(columns: Sequence[Column], groups: Sequence[str]) -> Table:
    table = ruled_table()
    table.collapse_padding = True
    _add_columns(table, columns)
    rows = list(zip(*(column.cells for column in columns), strict=True))
    changes = _with_previous(groups) or [("", "")] * len(rows)
    for cells, (name, before) in zip(rows, changes, strict=True):
        if name != before:
            table.add_section()
            table.add_row(Text(name))
        table.add_row(*cells)
    return table


def _add_columns(table: Table, columns: Sequence[Column]) -> None:
    for number, column in enumerate(columns):
        # In the narrowest terminals, names of rows wrap.
        wraps = column.least is not None or number == 0
        table.add_column(
            column.heading,
            justify="right" if column.right else "left",
            no_wrap=not wraps,
            overflow="fold",
        )
