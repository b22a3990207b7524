"""The MLflow side of the import: a local SQLite file, or whatever MLFLOW_TRACKING_URI names."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pfrnn.errors import PfrnnError
from pfrnn.study.track.importer import Attachments
from pfrnn.study.track.jobs import Job, Member
from pfrnn.study.track.registry import log_model

DEFAULT_URI = "sqlite:///mlflow.db"
# A call takes 1,000 entries in all, of them 100 parameters and 100 tags.
_METRICS_A_CALL = 750
_PARAMS_A_CALL = 100
_LONGEST_VALUE = 500


class StoreError(PfrnnError):
    """The tracking store can't be reached; the records are not touched by that."""


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
        # MLflow would print two lines for every run, some after an error's own last line.
        os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
        from mlflow import MlflowClient

        self._uri = uri
        with _in_words(uri):
            self._client = MlflowClient(tracking_uri=uri)
            self._experiments = {
                experiment.name: experiment.experiment_id
                for experiment in self._client.search_experiments()
            }

    def imported(self, experiment: str) -> dict[str, str]:
        """Return {job key: digest} of the jobs that stand completely in an experiment."""
        complete = "tags.`pfrnn.complete` = 'yes'"
        with _in_words(self._uri):
            return {
                run.data.tags["pfrnn.key"]: run.data.tags["pfrnn.digest"]
                for run in self._search(experiment, complete)
            }

    def replace(self, job: Job, attached: Attachments) -> None:
        """Remove a job's older runs, also half-written ones, and write its runs."""
        with _in_words(self._uri):
            for run in self._search(job.experiment, f"tags.`pfrnn.key` = '{job.key}'"):
                self._client.delete_run(run.info.run_id)
            parent = self._create(job, job.key.split("/", 3)[3], {})
            for path in attached.files:
                self._client.log_artifact(parent, str(path))
            if attached.model:
                log_model(self._client, self._uri, parent, attached.model)
            for member in job.members:
                # A member's tags cost next to nothing here, and a commit of their own later.
                tags = {**_tagged(member.tags), "mlflow.parentRunId": parent}
                child = self._create(job, member.name, tags)
                self._log(child, job, member._replace(tags={}))
                self._end(child, job)
            # Last of all: a parent without this tag is taken for half-written, and replaced.
            tags = {**job.tags, "pfrnn.digest": job.digest, "pfrnn.complete": "yes"}
            whole = Member(job.key, job.parameters, tags, job.metrics, {})
            self._log(parent, job, whole)
            self._end(parent, job)

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
        from mlflow.exceptions import MlflowException

        if name not in self._experiments:
            try:
                self._experiments[name] = self._client.create_experiment(name)
            except MlflowException:
                # Another import was faster.
                known = self._client.get_experiment_by_name(name)
                if known is None:
                    raise
                self._experiments[name] = known.experiment_id
        return self._experiments[name]

    def _create(self, job: Job, name: str, tags: Mapping[str, str]) -> str:
        created = self._client.create_run(
            self._experiment(job.experiment),
            start_time=job.finished_ms - int(1000 * job.seconds),
            tags={**tags, "pfrnn.key": job.key},
            run_name=name,
        )
        run_id: str = created.info.run_id
        return run_id

    def _end(self, run_id: str, job: Job) -> None:
        if not job.running:
            self._client.set_terminated(run_id, end_time=job.finished_ms)

    def _log(self, run_id: str, job: Job, member: Member) -> None:
        """Write parameters, tags and metrics; as a rule in one call."""
        from mlflow.entities import Metric, Param, RunTag

        params = [Param(key, value) for key, value in _clipped(member.parameters).items()]
        metrics = [Metric(k, v, job.finished_ms, 0) for k, v in member.metrics.items()]
        for key, points in member.curves.items():
            metrics += [Metric(key, value, job.finished_ms, step) for step, value in points]
        *early, last = _batches(metrics, _METRICS_A_CALL) or [[]]
        for part in early:
            self._client.log_batch(run_id, metrics=part)
        *first, rest = _batches(params, _PARAMS_A_CALL) or [[]]
        for values in first:
            self._client.log_batch(run_id, params=values)
        # The tags come last: among a parent's is the one that calls it complete.
        tags = [RunTag(key, value) for key, value in _tagged(member.tags).items()]
        self._client.log_batch(run_id, metrics=last, params=rest, tags=tags)


@contextmanager
def _in_words(uri: str) -> Iterator[None]:
    """Turn a store's failure into one sentence."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except (MlflowException, OSError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise StoreError(
            f"no MLflow store answers at {uri}: {first}; the records on disk are complete, "
            "import them later with: pfrnn mlflow-import"
        ) from error


def _tagged(values: Mapping[str, str]) -> dict[str, str]:
    """Tags that say something."""
    return {key: value for key, value in _clipped(values).items() if value}


def _clipped(values: Mapping[str, str]) -> dict[str, str]:
    return {key: value[:_LONGEST_VALUE] for key, value in values.items()}


def _batches(items: Iterable[Any], size: int) -> list[list[Any]]:
    """Split into lists of at most ``size``."""
    values = list(items)
    return [values[start : start + size] for start in range(0, len(values), size)]
