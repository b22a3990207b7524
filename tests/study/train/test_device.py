"""What run.json says of the device."""

import pytest
import torch

from pfrnn.study.train import device


def test_a_gpu_job_records_how_many_may_share_its_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "machine", lambda name: {"device": name})
    monkeypatch.setenv("PFRNN_GPU_SLOTS", "4")
    assert device.computed_on(torch.device("cuda:0")) == {"device": "cuda:0", "jobs_per_card": 4}
    monkeypatch.delenv("PFRNN_GPU_SLOTS")
    assert device.computed_on(torch.device("cuda:0"))["jobs_per_card"] == 1
    assert device.computed_on(torch.device("cpu")) == {"device": "cpu"}
