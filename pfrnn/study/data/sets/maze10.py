"""maze10: localisation on the paper's 10 x 10 maze, whose map the authors released."""

from pfrnn.study.data.sets._maze import MazeProtocol, make_dataset

DATASET = make_dataset(
    "maze10",
    "Maze 10 x 10",
    "map of the authors' release (github.com/Yusufma03/pfrnns); world of the paper, simulated here",
    MazeProtocol,
)
