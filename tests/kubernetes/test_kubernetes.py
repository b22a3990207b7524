"""The job objects that the kubernetes profile submits, against the published schema.

No cluster: a stub API server on loopback takes them. The profile's volume is a temporary folder.
"""

from __future__ import annotations

import copy
import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "workflow"))

from _copy import Copy
from _stub import Stub

from pfrnn.plan import load_plan

NEEDED = ("snakemake_executor_plugin_kubernetes", "snakemake_storage_plugin_fs")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
    pytest.mark.skipif(shutil.which("rsync") is None, reason="rsync not installed"),
]


class Submitted(NamedTuple):
    """What reached the API server."""

    jobs: list[dict[str, Any]]
    secrets: list[dict[str, Any]]
    output: str


@pytest.fixture(scope="module")
def submitted(tmp_path_factory: pytest.TempPathFactory) -> Submitted:
    """Plan the smoke tier with prepared data in the store; let all its blocks be submitted."""
    folder = tmp_path_factory.mktemp("kubernetes")
    work = Copy(folder)
    volume = tmp_path_factory.mktemp("volume")
    plan = load_plan("params.yaml", "smoke")
    prepared = volume / "store" / "data" / "prepared" / plan.prepared_id("maze10")
    prepare = [sys.executable, "-m", "pfrnn", "prepare", "maze10", "--tier", "smoke"]
    subprocess.run([*prepare, "--out", str(prepared)], cwd=folder, check=True)
    stub = Stub()
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
        KUBECONFIG=str(folder / "kubeconfig"),
        PFRNN_CHECKPOINTS="/pfrnn/checkpoints",
    )
    stub.close()
    return Submitted(stub.jobs, stub.secrets, done.stdout)


def container(job: dict[str, Any]) -> dict[str, Any]:
    (only,) = job["spec"]["template"]["spec"]["containers"]
    return only


def test_every_block_is_a_job(submitted) -> None:
    assert len(submitted.jobs) == 4, submitted.output
    commands = [container(job)["args"][1] for job in submitted.jobs]
    variants = {re.search(r"variant=(\w+)", command)[1] for command in commands}  # type: ignore[index]
    assert variants == {"lstm", "gru", "pf_lstm", "pf_gru"}


def test_the_job_asks_for_its_gpu_memory_and_volume(submitted) -> None:
    for job in submitted.jobs:
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
