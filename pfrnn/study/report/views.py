"""What the page's template is given: plain values, already written as text."""

from __future__ import annotations

from typing import NamedTuple


class CellView(NamedTuple):
    """One cell of a table laid out as the paper's."""

    dataset: str
    ours: str
    spread: str = ""
    paper: str = ""
    difference: str = ""
    kind: str = "none"
    symbol: str = ""
    word: str = ""
    reason: str = ""
    state: str = ""
    sort: str = ""
    record: int | None = None
    selected: str = ""


class Column(NamedTuple):
    """A column's heading and the data set that filters it."""

    text: str
    dataset: str


class MatrixRow(NamedTuple):
    """A method's row, or a control's."""

    text: str
    variant: str
    cells: tuple[CellView, ...]
    control: bool = False


class Matrix(NamedTuple):
    """A table laid out as the paper's."""

    anchor: str
    title: str
    caption: str
    note: str
    columns: tuple[Column, ...]
    rows: tuple[MatrixRow, ...]

    @property
    def empty(self) -> bool:
        """Whether no number of ours stands in it."""
        return all(cell.record is None for row in self.rows for cell in row.cells)


class PlainRow(NamedTuple):
    """A row of text cells; ``links`` gives some of them a target, ``anchor`` makes it one."""

    texts: tuple[str, ...]
    dataset: str = ""
    variant: str = ""
    control: bool = False
    links: tuple[tuple[int, str], ...] = ()
    anchor: str = ""

    def link(self, column: int) -> str:
        """Target of a cell; empty when it has none."""
        return dict(self.links).get(column, "")


class PlainTable(NamedTuple):
    """A table of text."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[PlainRow, ...]


class FigureView(NamedTuple):
    """A figure in the page; without ``svg``, why there is none."""

    name: str
    title: str
    caption: str
    alt: str
    svg: str
    wide: bool
    absent: str


class Player(NamedTuple):
    """The animated belief: the maze and the data as JSON text."""

    width: float
    height: float
    walls: tuple[tuple[float, float, str], ...]
    trajectories: int
    last: int
    data: str


class Part(NamedTuple):
    """A section of the page below the paper's tables."""

    anchor: str
    title: str
    paragraphs: tuple[str, ...] = ()
    tables: tuple[PlainTable, ...] = ()
    figures: tuple[FigureView, ...] = ()
    player: Player | None = None


class Tile(NamedTuple):
    """One number of the summary."""

    value: str
    text: str


class Record(NamedTuple):
    """The runs behind a number."""

    title: str
    lines: tuple[tuple[str, str], ...]
