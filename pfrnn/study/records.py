"""The files that a training job leaves: names and columns, in one place for writer and readers.

A block's folder (``results/<tier>/<block id>/``) holds

==================  =========================================================================
``run.json``        parameters, seeds, versions, commit, source and data digest, device, wall
                    time, peak memory, kernel path, graph (whether steps were captured, or why
                    not); written last: its presence means finished
``members.csv``     one row a member (columns ``MEMBER_COLUMNS``, then ``val_<metric>``)
``history.csv``     one row a member and epoch (``HISTORY_COLUMNS``, then ``val_<metric>``)
``best.pt``         best states: {"parameters": {name: (M, ...)}, "buffers": ...,
                    "members": {"number": (M,)}}; of a block the best member's alone, of a final
                    every repetition's
``checkpoint.pt``   the last state, while training; removed at the end
``.lock``           held by the process that trains here (jobfolder.py)
==================  =========================================================================

A final's folder also holds ``test.csv`` (one row a repetition and metric, ``TEST_COLUMNS``),
``predictions.npz`` and, for particle filters, ``belief.npz`` (samples for the figures), and
``errors.npz``, what every test item adds to the data set's metric, in the test split's order:

- ``repetition`` (R,): as in test.csv;
- ``error`` (R, N) float32, mean over passes; NaN in a repetition without value. rmse and mse: the
  squared error (mean over coordinates, the target's unit squared), summed over the item's observed
  steps; accuracy: the share of passes that are right; last_step_mse: the squared error there;
- ``count`` (N,): the observed steps that ``error`` sums over; 1 for accuracy and last_step_mse;
- ``cluster`` (N,): equal for items that share source rows; resample these, not items.

So the metric is ``error.sum(1) / count.sum()``: of rmse the square, of accuracy a share.
``results/<tier>/results.csv`` gathers all finals (``RESULT_COLUMNS``).
"""

from __future__ import annotations

_TRAINED = ("run.json", "members.csv", "history.csv", "best.pt")
OUTPUTS = {"search": _TRAINED, "final": (*_TRAINED, "test.csv", "errors.npz", "predictions.npz")}

MEMBER_COLUMNS = (
    "member",
    "learning_rate",
    "clip",
    "l2",
    "repetition",
    "seed",
    "status",  # completed | early_stopped | diverged
    "epochs",
    "best_epoch",
    "val_loss",
    "val_score",  # the selection score, lower is better
    "train_loss",
    "parameters",
)

HISTORY_COLUMNS = (
    "member",
    "epoch",
    "train_loss",
    "val_loss",
    "val_score",
    "gradient_norm",
    "ess",  # mean effective sample size / K over steps; empty without particles
    "unique_ancestors",  # mean share of distinct ancestors; empty without particles
    "learning_rate",
    "seconds",
)

TEST_COLUMNS = (
    "repetition",
    "seed",
    "metric",
    "value",  # mean over the passes of a stochastic model
    "passes",
    "passes_sd",
    "sampling_error",  # standard error from the finite test set
    "n_test",
    "selected_member_value",  # the search's chosen member on the same test set; never ours
)

RESULT_COLUMNS = (
    "tier",
    "dataset",
    "variant",
    "size_rule",
    "hidden_size",
    "particles",
    "batch_size",
    "learning_rate",
    "clip",
    "l2",
    "fidelity",
    *TEST_COLUMNS,
    "unit",
    "data_state",
    "data_digest",
    "parameters",
    "budget_configurations",
    "budget_epochs",
    "search_seconds",
    "final_seconds",
    "device",
    "commit",
    "final_id",
)


def outputs_of(job: str) -> tuple[str, ...]:
    """Return what a finished job must have left, by the first part of its id."""
    return OUTPUTS[job.partition("/")[0]]
