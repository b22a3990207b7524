"""maze27: localisation on a 27 x 27 maze of our own design; the paper's map was not published."""

from pfrnn.data.sets._maze import MazeProtocol, make_dataset

DATASET = make_dataset(
    "maze27",
    "Maze 27 x 27",
    "map designed for this reproduction (pfrnn/maze/design.py), the paper's is not published; "
    "world of the paper, simulated here",
    MazeProtocol,
)
