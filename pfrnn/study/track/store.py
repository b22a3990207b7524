"""The MLflow side of the import: a local SQLite file, or whatever MLFLOW_TRACKING_URI names."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pfrnn.errors import ConfigError, PfrnnError
from pfrnn.study.data.registry import dataset
from pfrnn.study.track.attachments import Model
from pfrnn.study.track.jobs import Job, Values
from pfrnn.study.track.registry import log_model

DEFAULT_URI = "sqlite:///mlflow.db"


class StoreError(PfrnnError):
    """The tracking store failed; the records are not touched by that."""


def tracking_uri() -> str:
    """Return MLFLOW_TRACKING_URI, or the local store."""
    return os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT_URI


def create_store(uri: str) -> None:
    """Create a database store's tables, or bring those of an older MLflow up to date.

    Done once, alone: several first connections to a fresh SQLite store break it. A server looks
    after its own store.

    Raises:
        StoreError: the tables are of a newer MLflow, or cannot be made.
    """
    if "://" not in uri or uri.startswith(("http://", "https://")):
        return
    command = [sys.executable, "-m", "mlflow", "db", "upgrade", uri]
    environment = os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1]
        if "Can't locate revision" in reason:
            raise StoreError(
                f"the MLflow store {uri} was written by a newer MLflow than the installed one; "
                f"install the newer one, or move the store away and import again"
            )
        raise StoreError(f"the MLflow store {uri} cannot be created: {reason}")


class MlflowStore:
    """Reads and writes the runs of one tracking store."""

    def __init__(self, uri: str) -> None:
        # A server that is down must not hold a workflow up: few, short attempts.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
        os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
        # MLflow would print two lines for every run, some after an error's own last line.
        os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
        from mlflow import MlflowClient

        self._uri = uri
        self._experiments: dict[str, str] = {}
        with _in_words(uri):
            self._client = MlflowClient(tracking_uri=uri)
            self._client.search_experiments(max_results=1)

    def imported(self, dataset: str) -> dict[str, str]:
        """Return {job key: digest} of the jobs that stand completely in a data set's experiment."""
        with _in_words(self._uri):
            return {
                run.data.tags["pfrnn.key"]: run.data.tags["pfrnn.digest"]
                for run in self._search(dataset, "tags.`pfrnn.complete` = 'yes'")
            }

    def replace(self, job: Job, files: Sequence[Path] = (), model: Model | None = None) -> None:
        """Remove a job's older runs, also half-written ones, and write its runs."""
        with _in_words(self._uri):
            for run in self._search(job.dataset, f"tags.`pfrnn.key` = '{job.key}'"):
                self._client.delete_run(run.info.run_id)
            status = "running" if job.running else "finished"
            parent = self._create(job, job.name, {**job.origin, "status": status})
            self._log_dataset(parent, job)
            for path in files:
                self._client.log_artifact(parent, str(path))
            if model:
                log_model(self._client, self._uri, parent, model)
            for member in job.members:
                tags = {"mlflow.parentRunId": parent, "status": member.status}
                self._log(self._create(job, member.name, tags), job, member.values)
            # Last of all: a parent without this tag is taken for half-written, and replaced.
            complete = {"pfrnn.digest": job.digest, "pfrnn.complete": "yes"}
            self._log(parent, job, job.values, complete)

    def _search(self, dataset: str, filter_string: str) -> list[Any]:
        found = self._client.search_runs(
            [self._experiment(dataset)], filter_string, max_results=50_000
        )
        return list(found)

    def _experiment(self, name: str) -> str:
        """The id of a data set's experiment, which is created, restored or replaced as needed."""
        if name not in self._experiments:
            self._experiments[name] = self._found(f"pfrnn/{name}") or self._new(name)
        return self._experiments[name]

    def _found(self, title: str) -> str | None:
        experiment = self._client.get_experiment_by_name(title)
        if experiment is None:
            return None
        identifier: str = experiment.experiment_id
        place = experiment.artifact_location.removeprefix("file://")
        if self._uri == DEFAULT_URI and not Path(place).is_relative_to(Path.cwd()):
            _say(f"{title}: its files lie in {place}; it is built again in this folder")
            self._client.rename_experiment(identifier, f"{title} (of {place})")
            self._client.delete_experiment(identifier)
            return None
        if experiment.lifecycle_stage == "deleted":
            _say(f"{title}: this experiment had been deleted in MLflow; it is restored")
            self._client.restore_experiment(identifier)
        return identifier

    def _new(self, name: str) -> str:
        from mlflow.exceptions import MlflowException

        title = f"pfrnn/{name}"
        # The kind opens the experiment on its training runs.
        tags = {"mlflow.experimentKind": "custom_model_development"}
        try:
            card = dataset(name).card
            tags["mlflow.note.content"] = (
                f"{card.title}: {card.target} ({card.unit}), metric {card.metric}. "
                "Imported from run records by pfrnn mlflow-import."
            )
        except ConfigError:  # a set that is no longer here
            pass
        try:
            created: str = self._client.create_experiment(title, tags=tags)
        except MlflowException:
            # Another import was faster.
            known = self._client.get_experiment_by_name(title)
            if known is None:
                raise
            created = known.experiment_id
        return created

    def _create(self, job: Job, name: str, tags: Mapping[str, str]) -> str:
        created = self._client.create_run(
            self._experiment(job.dataset),
            start_time=job.end_ms - int(1000 * job.seconds),
            tags={**job.tags, **tags, "pfrnn.key": job.key},
            run_name=name,
        )
        run_id: str = created.info.run_id
        return run_id

    def _log_dataset(self, run_id: str, job: Job) -> None:
        """Fill the run's dataset field: the name, the arrays' digest and their state."""
        from mlflow.entities import Dataset, DatasetInput

        digest, state = (job.origin.get(f"data_{name}", "unknown") for name in ("digest", "state"))
        data = Dataset(
            job.dataset, digest[:36], "pfrnn", f"data/prepared/{job.dataset}-* ({state})"
        )
        self._client.log_inputs(run_id, [DatasetInput(data, [])])

    def _log(
        self, run_id: str, job: Job, values: Values, tags: Mapping[str, str] | None = None
    ) -> None:
        """Write parameters, metrics and curves, tags last, and end the run of a finished job."""
        from mlflow.entities import Metric, Param, RunTag

        metrics = [Metric(key, value, job.end_ms, 0) for key, value in values.metrics.items()]
        for key, points in values.curves.items():
            metrics += [Metric(key, value, job.end_ms, epoch) for epoch, value in points]
        self._client.log_batch(
            run_id,
            metrics=metrics,
            params=[Param(key, value) for key, value in values.parameters.items()],
            tags=[RunTag(key, value) for key, value in (tags or {}).items()],
        )
        if not job.running:
            self._client.set_terminated(run_id, end_time=job.end_ms)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def _in_words(uri: str) -> Iterator[None]:
    """Say in one sentence what a store's failure is, and what cures it."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, OSError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        if "database schema" in first:
            cure = "pfrnn mlflow-import --create-store"
            message = f"the MLflow store {uri} has the tables of another MLflow; run: {cure}"
        elif uri.startswith(("http://", "https://")):
            message = f"no MLflow store answers at {uri}: {first}; import later"
        else:
            message = f"the MLflow store {uri} cannot be used: {first}; move it away, import again"
        raise StoreError(f"{message} (the records on disk are complete)") from error
