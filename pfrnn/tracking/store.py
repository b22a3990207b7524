"""The MLflow side of the import: a local SQLite file, or whatever MLFLOW_TRACKING_URI names."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from pfrnn.errors import PfrnnError
from pfrnn.tracking.jobs import Job, Member

DEFAULT_URI = "sqlite:///mlflow.db"
_METRICS_A_CALL = 1000
_PARAMS_A_CALL = 100
_LONGEST_VALUE = 500


def tracking_uri() -> str:
    """Return MLFLOW_TRACKING_URI, or the local store."""
    return os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT_URI


def create_store(uri: str) -> None:
    """Create or migrate a database store's tables.

    Done once, alone: several first connections to a fresh SQLite store break it. A server looks
    after its own store.
    """
    if "://" not in uri or uri.startswith(("http://", "https://")):
        return
    command = [sys.executable, "-m", "mlflow", "db", "upgrade", uri]
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1]
        raise PfrnnError(f"can't create the MLflow store {uri}: {reason}")


def _environment() -> dict[str, str]:
    return os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true"}


class MlflowStore:
    """Reads and writes the runs of one tracking store."""

    def __init__(self, uri: str) -> None:
        # A server that is down must not hold a workflow up: few, short attempts.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
        os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

        try:
            self._client = MlflowClient(tracking_uri=uri)
            self._experiments = {
                experiment.name: experiment.experiment_id
                for experiment in self._client.search_experiments()
            }
        except (MlflowException, OSError) as error:
            first = str(error).strip().splitlines()[0]
            raise PfrnnError(
                f"no MLflow store answers at {uri}: {first}; the records on disk are complete, "
                "import them later with: pfrnn mlflow-import"
            ) from error

    def imported(self, experiment: str) -> dict[str, str]:
        """Return {job key: digest} of the jobs that stand completely in an experiment."""
        complete = "tags.`pfrnn.complete` = 'yes'"
        return {
            run.data.tags["pfrnn.key"]: run.data.tags["pfrnn.digest"]
            for run in self._search(experiment, complete)
        }

    def replace(self, job: Job) -> None:
        """Remove a job's older runs, also half-written ones, and write its runs."""
        for run in self._search(job.experiment, f"tags.`pfrnn.key` = '{job.key}'"):
            self._client.delete_run(run.info.run_id)
        parent = self._write(
            job,
            Member(
                name=job.key.split("/", 3)[3],
                parameters=job.parameters,
                tags={**job.tags, "pfrnn.digest": job.digest},
                metrics=job.metrics,
                curves={},
            ),
        )
        origin = {key: job.tags[key] for key in ("commit", "data_digest") if key in job.tags}
        for member in job.members:
            tags = {**member.tags, **origin, "mlflow.parentRunId": parent}
            self._write(job, member._replace(tags=tags))
        # Last of all: a parent without this tag is taken for half-written, and replaced.
        self._client.set_tag(parent, "pfrnn.complete", "yes")

    def _search(self, experiment: str, filter_string: str) -> list[Any]:
        experiment_id = self._experiment(experiment)
        found: list[Any] = []
        token = None
        while True:
            page = self._client.search_runs(
                [experiment_id], filter_string, max_results=1000, page_token=token
            )
            found.extend(page)
            token = page.token
            if not token:
                return found

    def _experiment(self, name: str) -> str:
        if name not in self._experiments:
            self._experiments[name] = self._client.create_experiment(name)
        return self._experiments[name]

    def _write(self, job: Job, member: Member) -> str:
        from mlflow.entities import Metric, Param

        created = self._client.create_run(
            self._experiment(job.experiment),
            start_time=job.finished_ms,
            tags={**_clipped(member.tags), "pfrnn.key": job.key},
            run_name=member.name,
        )
        run_id: str = created.info.run_id
        params = [Param(key, value) for key, value in _clipped(member.parameters).items()]
        metrics = [Metric(k, v, job.finished_ms, 0) for k, v in member.metrics.items()]
        for key, points in member.curves.items():
            metrics += [Metric(key, value, job.finished_ms, step) for step, value in points]
        for part in _batches(params, _PARAMS_A_CALL):
            self._client.log_batch(run_id, params=part)
        for part in _batches(metrics, _METRICS_A_CALL):
            self._client.log_batch(run_id, metrics=part)
        self._client.set_terminated(run_id, end_time=job.finished_ms)
        return run_id


def _clipped(values: Mapping[str, str]) -> dict[str, str]:
    return {key: value[:_LONGEST_VALUE] for key, value in values.items()}


def _batches(items: Iterable[Any], size: int) -> list[list[Any]]:
    """Split into lists of at most ``size``."""
    values = list(items)
    return [values[start : start + size] for start in range(0, len(values), size)]
