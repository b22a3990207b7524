"""The job objects that the kubernetes profile submits, against the published schema.

No cluster: a stub API server on loopback takes them and runs their commands as processes. The
profile's volume is a temporary folder.
"""

from __future__ import annotations

import copy
import importlib.util
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "workflow"))

from _copy import Copy
from _stub import Pods, Stub

NEEDED = ("snakemake_executor_plugin_kubernetes", "snakemake_storage_plugin_fs")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
    pytest.mark.skipif(shutil.which("rsync") is None, reason="rsync not installed"),
]


class Submitted(NamedTuple):
    """What reached the API server, and the volume afterwards."""

    jobs: list[dict[str, Any]]
    secrets: list[dict[str, Any]]
    volume: Path
    output: str


@pytest.fixture(scope="module")
def submitted(tmp_path_factory: pytest.TempPathFactory) -> Submitted:
    """Run one variant of the smoke tier; each pod is a process in an empty folder."""
    folder = tmp_path_factory.mktemp("kubernetes")
    volume = tmp_path_factory.mktemp("volume")
    tools = tmp_path_factory.mktemp("tools")
    # The pods' command installs the storage plugin first; here it is installed.
    (tools / "pip").write_text("#!/bin/sh\nexit 0\n")
    (tools / "pip").chmod(0o755)
    path = f"{tools}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    work = Copy(folder)
    (folder / "one.yaml").write_text("study: {variants: [gru]}\n")
    pods = Pods(
        tmp_path_factory.mktemp("pods"),
        # As in the image: the package lies elsewhere than where the pod works.
        {"PYTHONPATH": str(folder), "PFRNN_CHECKPOINTS": str(volume / "checkpoints"), "PATH": path}
        | {"OMP_NUM_THREADS": "1", "KUBERNETES_SERVICE_HOST": "127.0.0.1"},
    )
    stub = Stub(pods)
    stub.kubeconfig(folder / "kubeconfig")
    done = work.snakemake(
        "--workflow-profile",
        "workflow/profiles/kubernetes",
        "--default-storage-prefix",
        str(volume / "store"),
        "--seconds-between-status-checks",
        "1",
        "--retries",
        "0",
        "--configfile",
        "one.yaml",
        KUBECONFIG=str(folder / "kubeconfig"),
        PFRNN_CHECKPOINTS="/pfrnn/checkpoints",
        PATH=path,
    )
    stub.close()
    logs = "\n".join(log.read_text() for log in pods.folder.glob("*.log"))
    return Submitted(stub.jobs, stub.secrets, volume, f"{done.stdout}\n{logs}")


def container(job: dict[str, Any]) -> dict[str, Any]:
    (only,) = job["spec"]["template"]["spec"]["containers"]
    return only


def test_the_run_is_whole(submitted) -> None:
    """Data preparation, the block and its final each in a pod; their files reach the store."""
    rules = [
        re.search(r"--allowed-rules (\w+)", container(job)["args"][1]) for job in submitted.jobs
    ]
    assert [rule[1] for rule in rules if rule] == ["prepare", "train", "finalise"], submitted.output
    results = submitted.volume / "store" / "results" / "smoke"
    assert (results / "results.csv").read_text().count("\n") > 2, submitted.output
    assert (results / "report" / "index.html").is_file()


def test_the_job_asks_for_its_gpu_memory_and_volume(submitted) -> None:
    for job in submitted.jobs[1:]:
        pod = job["spec"]["template"]["spec"]
        resources = container(job)["resources"]
        # Kubernetes refuses a GPU without a limit, or with one that isn't the request.
        assert resources["limits"]["nvidia.com/gpu"] == "1"
        assert resources["requests"]["nvidia.com/gpu"] == "1"
        assert int(resources["limits"]["memory"].removesuffix("M")) >= 3000
        assert container(job)["image"] == "registry.example.org/pfrnn:latest"
        assert {"name": "pfrnn", "persistentVolumeClaim": {"claimName": "pfrnn"}} in pod["volumes"]
        assert {"name": "pfrnn", "mountPath": "/pfrnn"} in container(job)["volumeMounts"]
        assert {t["key"] for t in pod["tolerations"]} == {"nvidia.com/gpu"}
        # Snakemake, not Kubernetes, tries again: with more memory.
        assert (pod["restartPolicy"], job["spec"]["backoffLimit"]) == ("Never", 0)


def test_checkpoints_outlive_the_pod(submitted) -> None:
    (secret,) = submitted.secrets
    for job in submitted.jobs:
        (variable,) = (e for e in container(job)["env"] if e["name"] == "PFRNN_CHECKPOINTS")
        reference = variable["valueFrom"]["secretKeyRef"]
        assert reference["name"] == secret["metadata"]["name"]
        assert reference["key"] in secret["data"]


def whole(job: dict[str, Any]) -> dict[str, Any]:
    """Add what the address of the request says: group, version and kind."""
    return {"apiVersion": "batch/v1", "kind": "Job"} | job


def test_the_objects_are_valid_by_the_published_schema(submitted) -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate missing")
    for job in submitted.jobs:
        validator.validate(whole(job), "1.30", strict=True)
    # And the check can fail.
    wrong = copy.deepcopy(whole(submitted.jobs[0]))
    wrong["spec"]["template"]["spec"]["containers"][0]["imagee"] = "x"
    with pytest.raises(validator.ValidationError):
        validator.validate(wrong, "1.30", strict=True)
    wrong = copy.deepcopy(whole(submitted.jobs[0]))
    wrong["spec"]["backoffLimit"] = "none"
    with pytest.raises(validator.ValidationError):
        validator.validate(wrong, "1.30", strict=True)
