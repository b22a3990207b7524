"""Posterior sharpening: how far the drawn weights move, and what the move costs."""

from __future__ import annotations

import torch

from .test_dropout import AXES, start


def test_weights_move_along_the_gradient_by_the_rate(tmp_path):
    """At rate 0 only the spread around the drawn weights is left, and no extra KL."""
    weights, costs = {}, {}
    for rate in (0.0, 0.02, 0.04):
        problem, path, population, members, batch = start(
            tmp_path,
            "bayes_lstm",
            dropout=0.0,
            bayesian={"sharpening": True, "sharpening_rate": rate},
        )
        calls = []
        forward = path.forward

        def watched(parameters, *rest, calls=calls, forward=forward):
            calls.append((parameters, forward(parameters, *rest)))
            return calls[-1][1]

        path.forward = watched
        leaves = {
            key: value.clone().requires_grad_() for key, value in population.parameters.items()
        }
        loss = path.training_loss(leaves, population, members, batch, AXES).loss
        (drawn, _), (moved, sharpened) = calls
        name = "core.cell.weight_recurrent"
        weights[rate] = moved[name] - drawn[name]
        costs[rate] = (loss - sharpened.loss) * problem.train.sequences
    one, two = (weights[rate] - weights[0.0] for rate in (0.02, 0.04))
    torch.testing.assert_close(two, 2 * one, rtol=1e-3, atol=1e-6)
    assert one.abs().max() > 1e-4
    # The KL of the move is the squared step over 2 sigma^2; the KL of the draw is the same in all.
    assert (costs[0.02] > costs[0.0]).all()
    torch.testing.assert_close(
        costs[0.04] - costs[0.0], 4 * (costs[0.02] - costs[0.0]), rtol=1e-2, atol=1e-2
    )
