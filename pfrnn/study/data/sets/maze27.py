"""maze27: localisation on a 27 x 27 maze of our own design; the paper's map was not published."""

from pydantic import Field

from pfrnn.study.data.sets._maze import MazeProtocol, make_dataset


class Maze27Protocol(MazeProtocol):
    """As maze10's, with longer trajectories (docs/protocols.md says why)."""

    steps: int = Field(default=100, ge=1, description="T, chosen by the exact posterior (ours).")


DATASET = make_dataset(
    "maze27",
    "Maze 27 x 27",
    "map designed for this reproduction (data/maze/design.py), the paper's is not published; "
    "world of the paper, simulated here",
    Maze27Protocol,
)
