"""What the three mazes share: protocol, simulated splits, inputs, targets and controls."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from pfrnn.study.data.base import SPLITS, Alternative, Arrays, Card, Dataset, Protocol, Split
from pfrnn.study.data.maze.landmarks import landmark_positions
from pfrnn.study.data.maze.maps import Maze, load_maze
from pfrnn.study.data.maze.particles import ParticleFilter
from pfrnn.study.data.maze.posterior import ExactFilter
from pfrnn.study.data.maze.scores import localization_scores, squared_errors
from pfrnn.study.data.maze.simulator import Trajectories, World, simulate
from pfrnn.study.seeding import derive_seed

# Inputs are brought to order one with constants of the world, not of the sample: moves in mean
# step lengths, changes of heading in half turns, distances centred and scaled by round numbers
# near their mean and standard deviation over a trajectory.
HALF_TURN = 180.0
DISTANCE_CENTRE = 1.5
DISTANCE_SCALE = 0.7

# Test trajectories, from the first, whose exact posterior is kept as draws for the figures.
PICTURED = 8
DRAWS = 64

# Of a world that hides the moves: trajectories and particles of the filter on the true model.
FILTERED = 200
PARTICLES = 3_000

# Direction noise of the release, degrees; the paper states none.
RELEASE_DIRECTION_NOISE = 3.0


class MazeProtocol(Protocol):
    """How trajectories are simulated and presented (docs/protocols.md, "Mazes")."""

    train: int = Field(default=10_000, ge=1, description="Training trajectories (paper).")
    validation: int = Field(default=1_000, ge=1, description="Validation trajectories (paper).")
    test: int = Field(default=2_000, ge=1, description="Test trajectories (paper).")
    steps: int = Field(default=80, ge=1, description="T; the paper gives none.")
    input: Literal["paper", "authors_code"] = Field(
        default="paper",
        description="paper: x_t = (u_{t-1}, o_t), u_0 = 0; authors_code: x_t = (u_t, o_t).",
    )
    action: Literal["realised", "command"] = Field(
        default="realised",
        description="realised: the move made, free of noise; command: the move intended.",
    )
    step_length: float = Field(default=0.2, gt=0, description="Mean move, map units (paper).")
    step_noise: float = Field(default=0.02, ge=0, description="Half width, map units (paper).")
    direction_noise: float | None = Field(
        default=None,
        ge=0,
        description="Half width, degrees; null: 0 (paper), 3 under authors_code or command.",
    )
    observation_noise: float = Field(default=0.1, ge=0, description="Half width (paper).")
    nearest: int = Field(default=5, ge=1, description="Distances in an observation (paper).")
    unique_landmarks: bool = Field(
        default=False, description="Drop duplicated corners; the release keeps them."
    )
    posterior_trajectories: int = Field(
        default=2_000,
        ge=0,
        description="Test trajectories, from the first, that the exact posterior answers (ours).",
    )

    def world(self) -> World:
        """Return the rules of the world that this protocol describes."""
        noise = self.direction_noise
        if noise is None:
            plain = self.input == "paper" and self.action == "realised"
            noise = 0.0 if plain else RELEASE_DIRECTION_NOISE
        return World(
            step_length=self.step_length,
            step_noise=self.step_noise,
            direction_noise=noise,
            observation_noise=self.observation_noise,
            nearest=self.nearest,
            unique_landmarks=self.unique_landmarks,
            action=self.action,
        )


ALTERNATIVES = (
    Alternative(
        "command",
        {"action": "command"},
        "The inputs hold the moves intended: length and direction noise stay hidden.",
    ),
    Alternative("authors_code", {"input": "authors_code"}, "The release's inputs and noise."),
)


def make_dataset(name: str, title: str, origin: str, protocol: type[MazeProtocol]) -> Dataset:
    """Build the data set of one maze; ``name`` is also its map's."""
    card = Card(
        name=name,
        title=title,
        task="localization",
        origin=origin,
        citation="Ma, Karkus, Hsu, Lee: Particle Filter Recurrent Neural Networks. AAAI 2020",
        licence="simulated here; no licence needed",
        redistributable=True,
        rows=None,
        target="pose: x, y, sin heading, cos heading",
        unit="map units^2",
        metric="last_step_mse",
    )
    return Dataset(card, protocol, functools.partial(prepare, name), alternatives=ALTERNATIVES)


def simulate_split(name: str, protocol: MazeProtocol, seed: int, split: str) -> Trajectories:
    """Simulate one split; its seed is (base seed, maze, split): no split depends on another."""
    count = {"train": protocol.train, "validation": protocol.validation, "test": protocol.test}
    return simulate(
        load_maze(name),
        protocol.world(),
        count[split],
        protocol.steps,
        derive_seed(seed, name, "trajectories", split),
    )


def prepare(name: str, raw: Path, protocol: MazeProtocol, seed: int) -> Arrays:
    """Simulate the splits of a maze; nothing is read from ``raw``."""
    maze, world = load_maze(name), protocol.world()
    mean, std = target_scale(maze)
    simulated = {split: simulate_split(name, protocol, seed, split) for split in SPLITS}
    splits, first = {}, 0
    for split, trajectories in simulated.items():
        splits[split] = make_split(trajectories, protocol, mean, std, first)
        first += trajectories.heading.size
    test = simulated["test"]
    controls = {"map_centre": map_centre(maze, test)}
    extra: dict[str, npt.NDArray[Any]] = {
        "map": maze.grid,
        "landmarks": landmark_positions(maze).astype(np.float32),
        "scale": input_scale(protocol).astype(np.float32),
    }
    notes = ["simulated from the base seed; the target is standardised by the map, not a sample"]
    count = min(protocol.posterior_trajectories, protocol.test)
    if count and world.action == "command":
        count = min(count, FILTERED)
        controls["particle_filter"] = particle_filter(maze, world, test, count, seed)
        notes.append(
            f"the moves are hidden: instead of the exact posterior a filter on the true model "
            f"with {PARTICLES} particles answered {count} of {protocol.test} test trajectories"
        )
    elif count:
        scores, arrays = exact_posterior(maze, protocol, test, count)
        extra |= arrays | {"exact_rows": splits["test"].rows[:count, 0]}
        notes.append(f"the exact posterior answered {count} of {protocol.test} test trajectories")
        reference = "exact_posterior"
        if world.direction_noise > 0:
            reference = "posterior_without_turns"
            notes.append(
                "with direction noise the posterior does not use the turns: no floor, a learned "
                "model that uses them can do better"
            )
        controls[reference] = scores
    return Arrays(
        splits=splits,
        target_mean=tuple(mean.tolist()),
        target_std=tuple(std.tolist()),
        features=("dx", "dy", "turn", *(f"distance{i + 1}" for i in range(protocol.nearest))),
        controls=controls,
        extra=extra,
        notes=tuple(notes),
    )


def exact_posterior(
    maze: Maze, protocol: MazeProtocol, test: Trajectories, count: int
) -> tuple[dict[str, float], dict[str, npt.NDArray[np.float32]]]:
    """Answer the first ``count`` test trajectories by the mean of the exact posterior.

    Returns:
        Scores: ``last_step_mse`` ... of the answers, and ``last_step_expected`` and
        ``all_steps_expected``, the posterior's own variance, which estimates the same floor with
        less noise. Arrays, map units: ``exact_mean`` (count, T, 2) and, of the first few,
        ``exact_samples`` (few, T, draws, 2) for the belief picture.
    """
    world, ahead = protocol.world(), protocol.input == "authors_code"
    part = Trajectories(*(field[:count] for field in test))
    exact = ExactFilter(maze, world, turns=world.direction_noise == 0)
    posterior = exact(part, next_action=ahead)
    scores = localization_scores(squared_errors(posterior.mean, part.position))
    scores["last_step_expected"] = float(posterior.variance[:, -1].mean())
    scores["all_steps_expected"] = float(posterior.variance.mean())
    few = Trajectories(*(field[:PICTURED] for field in part))
    samples = exact(few, next_action=ahead, samples=DRAWS).samples
    return scores, {
        "exact_mean": posterior.mean.astype(np.float32),
        "exact_samples": samples.astype(np.float32),
    }


def particle_filter(
    maze: Maze, world: World, test: Trajectories, count: int, seed: int
) -> dict[str, float]:
    """Scores of a particle filter on the true model on the first ``count`` test trajectories."""
    part = Trajectories(*(field[:count] for field in test))
    model = ParticleFilter(maze, world, PARTICLES)
    answers = model(part, derive_seed(seed, maze.name, "particle filter"))
    return localization_scores(squared_errors(answers, part.position))


def target_scale(maze: Maze) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Mean and standard deviation of (x, y, sin, cos) for a uniform pose on the free cells.

    They follow from the map alone: the variance of the cells' centres plus 1/12 within a cell, and
    1/2 for sine and cosine.
    """
    centres = maze.free_cells() + 0.5
    mean = np.concatenate([centres.mean(axis=0), [0.0, 0.0]])
    variance = np.concatenate([centres.var(axis=0) + 1.0 / 12.0, [0.5, 0.5]])
    return mean, np.sqrt(variance)


def input_scale(protocol: MazeProtocol) -> npt.NDArray[np.float64]:
    """Rows (offset, factor) of the input columns: (2, 3 + nearest); x = (raw - offset) / factor."""
    distances = protocol.nearest
    offset = [0.0, 0.0, 0.0] + [DISTANCE_CENTRE] * distances
    factor = [protocol.step_length] * 2 + [HALF_TURN] + [DISTANCE_SCALE] * distances
    return np.array([offset, factor])


def make_split(
    trajectories: Trajectories,
    protocol: MazeProtocol,
    mean: npt.NDArray[np.float64],
    std: npt.NDArray[np.float64],
    first_row: int,
) -> Split:
    """Turn trajectories into a split's arrays; rows are numbered from ``first_row``."""
    action = trajectories.action
    if protocol.input == "paper":
        action = np.zeros_like(action)
        action[:, 1:] = trajectories.action[:, :-1]
    offset, factor = input_scale(protocol)
    inputs = np.concatenate([action, trajectories.observation], axis=-1)
    angle = np.deg2rad(trajectories.heading)[..., None]
    pose = np.concatenate([trajectories.position, np.sin(angle), np.cos(angle)], axis=-1)
    count, steps = trajectories.heading.shape
    return Split(
        x=((inputs - offset) / factor).astype(np.float32),
        length=np.full(count, steps, dtype=np.int32),
        y=((pose - mean) / std).astype(np.float32),
        mask=np.ones((count, steps), dtype=np.bool_),
        rows=first_row + np.arange(count * steps, dtype=np.int64).reshape(count, steps),
    )


def map_centre(maze: Maze, trajectories: Trajectories) -> dict[str, float]:
    """Scores of always answering the map's centre: the negative control."""
    centre = np.array([maze.width, maze.height]) / 2.0
    return localization_scores(squared_errors(centre, trajectories.position))
