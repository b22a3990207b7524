"""The update in one piece of memory has the bits of the update tensor by tensor."""

from __future__ import annotations

import copy
import io
import math
import pickle

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pfrnn.kernels.graph import EagerCapture
from pfrnn.study.plan import Setting
from pfrnn.study.train import path as path_module
from pfrnn.study.train import trainer
from pfrnn.study.train.batches import gather
from pfrnn.study.train.choose import choose_path
from pfrnn.study.train.flat import ALIGNMENT, Flat, FlatRMSprop
from pfrnn.study.train.graphed import GraphedPath
from pfrnn.study.train.members import final_members, hyper, search_members
from pfrnn.study.train.optimiser import Hyper, rmsprop
from pfrnn.study.train.population import Population, new_population
from pfrnn.study.variants import variant

from .test_population import SETTINGS, run, world

CPU = torch.device("cpu")
SHAPES = {
    "a.weight": (5, 7),
    "a.bias": (7,),
    "b.weight": (130, 3),
    "single": (1, 1),
    "b.bias": (1,),
}
DECAY, EPSILON = 0.95, 1e-7


def plain_bias(name: str) -> bool:
    return not name.endswith("bias")


def bits(value: torch.Tensor) -> torch.Tensor:
    """Equal for equal bits only: no number is itself, and zeros have signs."""
    return value.contiguous().view(torch.int32)


def same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return list(one) == list(two) and all(
        one[name].shape == two[name].shape and torch.equal(bits(one[name]), bits(two[name]))
        for name in one
    )


def stack(members: int, generator: torch.Generator, scale: float = 1.0) -> dict[str, torch.Tensor]:
    return {
        name: torch.randn(members, *shape, generator=generator) * scale
        for name, shape in SHAPES.items()
    }


def on(device: str, stack: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value.to(device) for name, value in stack.items()}


def settings_of(members: int) -> Hyper:
    numbers = torch.arange(members, dtype=torch.float32)
    return Hyper(1e-3 * (1 + numbers), 0.5 + 3 * numbers, 1e-2 * numbers + 1e-3)


def gradients_of(members: int, step: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Gradients small and large, with zeros of both signs, and some that are no numbers."""
    made = stack(members, generator, 10.0 ** (step % 5 - 3))
    made["a.bias"][:, 0], made["a.bias"][:, 1] = 0.0, -0.0
    # What the kernels return: a part of a wider tensor.
    wider = torch.randn(members, 12, generator=generator)
    made["a.bias"][:, 2:] = wider[:, 2:7]
    made["a.bias"] = torch.cat([made["a.bias"], wider], 1)[:, :7]
    if step == 3:
        made["b.weight"][0, 5, 1] = math.nan
    if step == 4:
        made["single"][-1] = math.inf
    if step == 5:
        made["b.bias"][0] = -math.inf
    return made


DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
        ],
    ),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("members", [1, 2, 5])
@pytest.mark.parametrize(
    "decays", [lambda name: True, plain_bias, lambda name: False], ids=["all", "weights", "none"]
)
def test_the_same_bits_over_several_steps(members, decays, device):
    generator = torch.Generator().manual_seed(members)
    values = stack(members, generator)
    values["b.weight"][:, 0] = -0.0
    # Where L2 doesn't act, no product with it may be taken: infinity times zero.
    values["a.bias"][:, 3] = math.inf
    values = on(device, values)
    squares = {name: torch.zeros_like(value) for name, value in values.items()}
    settings = Hyper(*(value.to(device) for value in settings_of(members)))
    flat = FlatRMSprop(Flat(values), Flat(squares), settings, decays)
    moved = []
    for step in range(9):
        gradients = on(device, gradients_of(members, step, generator))
        alive = torch.ones(members, dtype=torch.bool, device=device)
        if step in (2, 6):
            alive[step % members] = False
        update = rmsprop(values, gradients, squares, settings, DECAY, EPSILON, alive, decays)
        moved.append(not same(values, update.parameters))
        values, squares = update.parameters, update.square_average
        before = {name: value.clone() for name, value in flat.parameters.items()}
        found = flat.update(gradients, DECAY, EPSILON, alive)
        assert same(before, flat.parameters), "an update writes nothing before it is told to"
        flat.write(found)
        assert torch.equal(bits(found.gradient_norm), bits(update.gradient_norm))
        assert torch.equal(found.moves, update.moves)
        assert torch.equal(found.moves, alive & torch.isfinite(found.gradient_norm))
        assert same(values, flat.parameters), step
        assert same(squares, flat.square_average), step
    assert sum(moved) >= 4


MUTANTS = {
    "weighed_by_zero": lambda one: (
        setattr(
            one,
            "_l2",
            torch.where(one._partly, one._l2, 0.0) if one._partly is not None else one._l2,
        )
        or setattr(one, "_partly", None)
    ),
    "everything_decays": lambda one: setattr(one, "_partly", None),
    "others_rate": lambda one: setattr(one, "_rate", one._rate.roll(ALIGNMENT)),
    "others_member": lambda one: setattr(one, "_member", one._member.flip(0)),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_wrong_update_is_seen(mutant):
    generator = torch.Generator().manual_seed(0)
    values = stack(3, generator)
    # Minus zero plus zero is zero.
    gradients = {name: torch.full_like(value, -0.0) for name, value in values.items()}
    gradients["a.weight"] = torch.randn(3, 5, 7, generator=generator)
    values["a.bias"][:, 1] = math.inf
    squares = {name: torch.ones_like(value) for name, value in values.items()}
    settings, alive = settings_of(3), torch.ones(3, dtype=torch.bool)
    expected = rmsprop(values, gradients, squares, settings, DECAY, EPSILON, alive, plain_bias)
    for wrong in (False, True):
        flat = FlatRMSprop(Flat(values), Flat(squares), settings, plain_bias)
        if wrong:
            MUTANTS[mutant](flat)
        flat.write(flat.update(gradients, DECAY, EPSILON, alive))
        found = same(expected.parameters, flat.parameters)
        assert found == (not wrong)


def test_a_parameter_lies_as_a_tensor_of_its_own_would():
    """In itself contiguous, and as aligned as torch's allocator makes tensors on a GPU."""
    flat = Flat(stack(3, torch.Generator().manual_seed(1)))
    for value in flat.values():
        assert value.is_contiguous()
        assert value.storage_offset() * value.element_size() % 512 == 0
        assert value.untyped_storage().data_ptr() == flat.whole.untyped_storage().data_ptr()


def flattening(monkeypatch):
    """Let every population of a training loop lie as it does on a GPU."""
    real = trainer.new_population

    def made(*arguments):
        population = real(*arguments)
        population.flatten()
        return population

    monkeypatch.setattr(trainer, "new_population", made)
    restored = Population.from_plain.__func__

    def read(cls, plain, device):
        population = restored(cls, plain, device)
        population.flatten()
        return population

    monkeypatch.setattr(Population, "from_plain", classmethod(read))


def counted(calls: list[int]):
    """The update tensor by tensor, its calls counted."""

    def update(*arguments):
        calls.append(1)
        return rmsprop(*arguments)

    return update


CASES = [
    ("toy_regression", "gru", False),
    ("toy_regression", "pf_lstm", False),
    ("toy_regression", "pf_lstm", True),
    ("toy_regression", "bayes_lstm", False),
    ("toy_classes", "pf_gru", True),
]


@pytest.mark.parametrize(("name", "model", "graphs"), CASES)
def test_a_block_trains_to_the_same_bits(tmp_path, monkeypatch, name, model, graphs):
    """Epochs, early stopping, a member that diverges, best states, replayed steps."""
    problem, plain = world(tmp_path, name, model, training={"max_epochs": 4, "patience": 2})
    count = problem.train.sequences
    members = search_members([*SETTINGS, Setting(1e30, 5.0, 1e-3)], 1, name)
    ends = []
    for flat in (False, True):
        path = choose_path(plain.spec, variant(model), problem.config, count, CPU)
        calls = []
        with monkeypatch.context() as patch:
            if flat:
                flattening(patch)
            patch.setattr(path_module, "rmsprop", counted(calls))
            way = GraphedPath(path, EagerCapture) if graphs else path
            ends.append(run(problem, way, members, tmp_path / str(flat)))
        assert bool(calls) != flat
        assert not graphs or way.graph.startswith("captured"), way.graph
    for one, other in zip(ends[0].history, ends[1].history, strict=True):
        assert one | {"seconds": 0} == pytest.approx(other | {"seconds": 0}, abs=0, nan_ok=True)
    assert [one.status for one in ends[0].progress] == [one.status for one in ends[1].progress]
    assert "diverged" in [one.status for one in ends[0].progress]
    for place, best in ends[0].best.items():
        assert same(best[0], ends[1].best[place][0])
        assert all(torch.equal(v, ends[1].best[place][1][k]) for k, v in best[1].items())


def start(tmp_path, count=3, model="pf_lstm"):
    problem, path = world(tmp_path, "toy_regression", model)
    members = final_members(SETTINGS[0], count, 1, "toy_regression")
    population = new_population(path.build, members, CPU)
    batch = gather(problem.train, torch.arange(6).repeat(count, 1).numpy())
    return path, population, members, batch


def saved(population: Population) -> bytes:
    buffer = io.BytesIO()
    torch.save(population.to_plain(), buffer)
    return buffer.getvalue()


def state_of(population: Population) -> list[torch.Tensor]:
    return [value.clone() for value in population.trained()]


def test_a_copied_or_pickled_population_stays_in_one_piece(tmp_path):
    """Else its update would move memory that no parameter lies in, without a word."""
    path, population, members, batch = start(tmp_path)
    population.flatten()
    settings = hyper(members, CPU)
    path.train_step(population, members, settings, batch)
    others = [copy.deepcopy(population), pickle.loads(pickle.dumps(population))]
    for one in (population, *others):
        path.train_step(one, members, settings, batch)
    for other in others:
        assert other.flat
        assert all(
            torch.equal(a, b) for a, b in zip(state_of(population), state_of(other), strict=True)
        )


def test_a_flat_population_of_nothing_is_refused():
    with pytest.raises(ValueError, match="got none"):
        Flat({})


@pytest.mark.parametrize("way", ["flat", "plain"])
def test_a_checkpoint_goes_on_in_either_memory(tmp_path, way):
    """Old checkpoints on a GPU, and a GPU's checkpoints on a CPU; none holds a buffer twice."""
    path, population, members, batch = start(tmp_path)
    settings = hyper(members, CPU)
    path.train_step(population, members, settings, batch)
    other = copy.deepcopy(population)
    other.flatten()
    assert other.flat
    assert not population.flat
    sizes = [len(saved(one)) for one in (population, other)]
    gaps = 2 * 4 * ALIGNMENT * len(population.parameters)
    assert sizes[1] < sizes[0] + gaps + 4096
    source = other if way == "flat" else population
    plain = torch.load(io.BytesIO(saved(source)), weights_only=True)
    again = Population.from_plain(plain, CPU)
    assert not again.flat
    if way == "plain":
        again.flatten()
    for one in (population, again):
        path.train_step(one, members, settings, batch)
    assert all(
        torch.equal(a, b) for a, b in zip(state_of(population), state_of(again), strict=True)
    )


def test_what_is_taken_is_flat_and_shares_nothing(tmp_path):
    path, population, members, batch = start(tmp_path)
    expected = copy.deepcopy(population).take([0, 2])
    population.flatten()
    taken = population.take([0, 2])
    assert taken.flat
    assert taken.parameters.whole.data_ptr() != population.parameters.whole.data_ptr()
    few = [members[0], members[2]]
    batch = batch._replace(
        **{k: getattr(batch, k)[:, [0, 2]] for k in ("x", "y", "mask")}, lengths=batch.lengths[:2]
    )
    untouched = state_of(population)
    for one in (expected, taken):
        path.train_step(one, few, hyper(few, CPU), batch)
    assert all(torch.equal(a, b) for a, b in zip(state_of(expected), state_of(taken), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(untouched, state_of(population), strict=True))


def test_no_piece_of_memory_moves_and_out_of_memory_changes_nothing(tmp_path, monkeypatch):
    path, population, members, batch = start(tmp_path)
    population.flatten()
    settings = hyper(members, CPU)
    places = [value.data_ptr() for value in population.trained()]
    path.train_step(population, members, settings, batch)
    before = state_of(population)

    def fail(*arguments, **options):
        raise torch.OutOfMemoryError("CUDA out of memory")

    for where in (
        "torch.cat",
        "torch.stack",
        "torch.div",
        "pfrnn.study.train.flat.FlatRMSprop.update",
    ):
        with monkeypatch.context() as patch:
            patch.setattr(where, fail)
            with pytest.raises(torch.OutOfMemoryError):
                path.train_step(population, members, settings, batch)
        assert all(torch.equal(a, b) for a, b in zip(before, state_of(population), strict=True))
    path.train_step(population, members, settings, batch)
    assert not torch.equal(before[0], population.trained()[0])
    assert places == [value.data_ptr() for value in population.trained()]


def test_a_population_for_evaluation_or_of_two_types_stays_as_it_is(tmp_path):
    _, population, _, _ = start(tmp_path)
    only = Population.of_best([0, 1, 2], population.parameters, population.buffers, CPU)
    only.flatten()
    assert not only.flat
    first = next(iter(population.parameters))
    population.parameters[first] = population.parameters[first].double()
    population.flatten()
    assert not population.flat


def test_a_gpus_population_is_flat_from_the_start(tmp_path):
    """The meta device stands for one: it is no CPU."""
    _, population, _, _ = start(tmp_path)
    meta = Population.from_plain(population.to_plain(), torch.device("meta"))
    assert meta.flat
    assert meta.take([0]).flat
    assert type(meta.to_plain()["parameters"]) is dict


# Operations that launch no kernel on a GPU.
FREE = {"view", "_unsafe_view", "slice", "select", "expand", "detach", "split", "unsqueeze",
        "empty", "empty_like", "as_strided", "alias", "unbind", "t", "transpose"}  # fmt: skip


class Count(TorchDispatchMode):
    """Counts the kernels that a GPU would launch, one an operation.

    A list operation on tensors of unequal shapes falls apart into one a tensor.
    """

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        packet = str(function).split(".")[1]
        if packet.startswith("_foreach"):
            lists = [one for one in arguments if isinstance(one, list | tuple)]
            whole = all(
                len({value.shape for value in row}) == 1 for row in zip(*lists, strict=True)
            )
            self.number += 1 if whole else len(lists[0])
        elif packet not in FREE:
            self.number += 1
        return function(*arguments, **(options or {}))


@pytest.mark.parametrize("members", [1, 3])
def test_an_update_takes_few_operations(tmp_path, members):
    """Two dozen besides one norm a parameter, where it took a dozen a parameter."""
    path, population, people, _ = start(tmp_path, members)
    settings, names = hyper(people, CPU), list(population.parameters)
    gradients = {name: torch.randn_like(value) for name, value in population.parameters.items()}
    alive = torch.ones(members, dtype=torch.bool)
    with Count() as plain:
        rmsprop(
            population.parameters, gradients, population.square_average, settings,
            DECAY, EPSILON, alive, path.decays, False,
        )  # fmt: skip
    population.flatten()
    flat = FlatRMSprop(population.parameters, population.square_average, settings, path.decays)
    with Count() as found:
        flat.write(flat.update(gradients, DECAY, EPSILON, alive))
    assert found.number <= len(names) + 24
    assert plain.number >= 5 * len(names)
