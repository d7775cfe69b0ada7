"""Tables that fit into a terminal: columns are dropped by priority, and the answer is kept."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import attrs
from rich import box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from comparative_benchmark.terminal.screen import Screen

Cell = str | Text

# A workload is shown in a line above its rows if it has no column.
_INDENT = "  "
_NO_LIMIT = 10_000


@attrs.frozen(kw_only=True)
class Column:
    """A column of a table.

    Attributes:
      heading: shown above it.
      cells: one for each row.
      rank: priority; columns of rank 0 are always shown, and the highest rank is dropped first.
      right: whether cells are aligned to the right.
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
        """Characters by which it may shrink."""
        if self.least is None:
            return 0
        longest = max((cell_len(str(cell)) for cell in self.cells), default=0)
        return max(0, longest - max(self.least, len(self.heading)))


@attrs.frozen(kw_only=True)
class FittedTable:
    """A table and what it lacks.

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

    Groups have a column of their own if everything fits, else a line above their rows. Columns are
    dropped after that.

    Args:
      columns: in their order from left to right; the first one names the rows.
      width: of the terminal, in characters.
      groups: the group of each row; rows of a group follow each other. Empty for no groups.
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
    kept = list(columns)
    if groups:
        first = kept[0]
        kept[0] = attrs.evolve(
            first,
            heading=f"{group_heading}, {first.heading}",
            cells=[Text(_INDENT).append(cell) for cell in first.cells],
            without={
                name: [Text(_INDENT).append(cell) for cell in cells]
                for name, cells in first.without.items()
            },
        )
    dropped: list[str] = []
    table = _narrow(kept, groups)
    while _width(table, kept) > width and (optional := [c for c in kept if c.rank]):
        last = max(optional, key=lambda column: column.rank)
        dropped.append(last.heading)
        kept = [
            attrs.evolve(column, cells=column.without.get(last.heading, column.cells))
            for column in kept
            if column is not last
        ]
        table = _narrow(kept, groups)
    order = [column.heading for column in columns if column.heading in dropped]
    return FittedTable(table=table, dropped=tuple(order), needed=needed)


def ruled_table() -> Table:
    """Returns an empty table with lines between its sections and none between its columns."""
    return Table(box=box.HORIZONTALS, pad_edge=False)


def _width(table: Table, columns: Sequence[Column]) -> int:
    # Brackets in names are not markup.
    screen = Screen(width=_NO_LIMIT)
    widest = screen.measure(table).maximum
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
        # The names of rows are continued below each other in the narrowest terminals.
        wraps = column.least is not None or number == 0
        table.add_column(
            column.heading,
            justify="right" if column.right else "left",
            no_wrap=not wraps,
            overflow="fold",
        )
