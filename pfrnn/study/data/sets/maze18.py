"""maze18: localisation on a 18 x 18 maze of our own design; the paper's map was not published."""

from pydantic import Field

from pfrnn.study.data.sets._maze import MazeProtocol, make_dataset


class Maze18Protocol(MazeProtocol):
    """As maze10's, with longer trajectories (docs/protocols.md says why)."""

    steps: int = Field(default=100, ge=1, description="T, chosen by the exact posterior (ours).")


DATASET = make_dataset(
    "maze18",
    "Maze 18 x 18",
    "map designed for this reproduction (data/maze/design.py), the paper's is not published; "
    "world of the paper, simulated here",
    Maze18Protocol,
)
