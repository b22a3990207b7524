"""maze18: localisation on a 18 x 18 maze of our own design; the paper's map was not published."""

from pfrnn.data.sets._maze import MazeProtocol, make_dataset

DATASET = make_dataset(
    "maze18",
    "Maze 18 x 18",
    "map designed for this reproduction (pfrnn/maze/design.py), the paper's is not published; "
    "world of the paper, simulated here",
    MazeProtocol,
)
