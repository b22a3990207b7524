"""The GPU lease: distinct devices, freed by the kernel, stepping aside for schedulers."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pfrnn.errors import ConfigError, PfrnnError
from pfrnn.study.devices import acquire, slots_per_device, visible_devices

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def four(tmp_path):
    return {"CUDA_VISIBLE_DEVICES": "0,1,2,3", "PFRNN_LOCK_DIR": str(tmp_path / "locks")}


def test_four_jobs_get_four_devices_and_a_fifth_waits(four):
    leases = [acquire(environment=four) for _ in range(4)]
    assert sorted(device for lease in leases for device in lease.devices) == ["0", "1", "2", "3"]
    said = []
    with pytest.raises(PfrnnError, match="became free"):
        acquire(environment=four, wait_seconds=0.05, poll_seconds=0.01, on_wait=said.append)
    assert len(said) == 1
    leases[2].close()
    assert acquire(environment=four).devices == leases[2].devices


def test_several_devices_are_taken_all_or_none(four):
    with acquire(3, four):
        with pytest.raises(PfrnnError):
            acquire(2, four, wait_seconds=0.0)
        # The failed try of two must not have kept the one free device.
        with acquire(1, four) as one:
            assert one.devices == ("3",)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2,3", ("2", "3")),
        ("GPU-8a1b,GPU-77ff", ("GPU-8a1b", "GPU-77ff")),
        ("MIG-GPU-8a1b/1/0", ("MIG-GPU-8a1b/1/0",)),
        ("", ()),
        ("-1", ()),
        ("0,-1,2", ("0",)),
    ],
)
def test_the_users_variable_is_the_pool(value, expected, tmp_path):
    environment = {"CUDA_VISIBLE_DEVICES": value, "PFRNN_LOCK_DIR": str(tmp_path)}
    assert visible_devices(environment) == expected
    lease = acquire(environment=environment)
    assert lease.devices == expected[:1]
    assert ("CPU" in lease.reason) == (not expected)


def test_without_the_variable_device_files_count(tmp_path):
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert visible_devices({}, tmp_path) == ("0", "1")


@pytest.mark.parametrize("name", ["SLURM_JOB_ID", "KUBERNETES_SERVICE_HOST"])
def test_a_schedulers_choice_stands(four, name):
    one = four | {name: "7", "CUDA_VISIBLE_DEVICES": "0"}
    for _ in range(2):  # two tasks may both see their own card as 0
        lease = acquire(environment=one)
        assert lease.devices == ()
        assert name in lease.reason


def test_jobs_inside_one_allocation_share_its_cards(four):
    first, second = (acquire(environment=four | {"SLURM_JOB_ID": "7"}) for _ in range(2))
    assert first.devices != second.devices
    # Another allocation on the node numbers its own cards from 0 too.
    assert acquire(environment=four | {"SLURM_JOB_ID": "8"}).devices == first.devices


def test_slots_let_jobs_share_a_card_and_spread_first(four):
    environment = four | {"PFRNN_GPU_SLOTS": "2"}
    leases = [acquire(environment=environment) for _ in range(8)]
    order = [lease.devices[0] for lease in leases]
    assert sorted(order[:4]) == sorted(order[4:]) == ["0", "1", "2", "3"]
    with pytest.raises(PfrnnError):
        acquire(environment=environment, wait_seconds=0.0)


def test_unusable_settings_are_refused(four):
    with pytest.raises(ConfigError, match="asks for 5"):
        acquire(5, four)
    with pytest.raises(ConfigError, match="each device once"):
        visible_devices({"CUDA_VISIBLE_DEVICES": "0,0"})
    with pytest.raises(ConfigError, match="PFRNN_GPU_SLOTS"):
        slots_per_device({"PFRNN_GPU_SLOTS": "half"})


def test_sigkill_frees_the_device_at_once(four):
    code = (
        "import time; from pfrnn.study.devices import acquire; "
        "lease = acquire(); print(lease.devices[0], flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | four | {"CUDA_VISIBLE_DEVICES": "0", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    one = four | {"CUDA_VISIBLE_DEVICES": "0"}
    try:
        assert holder.stdout.readline().strip() == "0"
        with pytest.raises(PfrnnError):
            acquire(environment=one, wait_seconds=0.0)
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    assert acquire(environment=one, wait_seconds=0.0).devices == ("0",)


def test_twelve_processes_on_four_devices_never_share(four, tmp_path):
    """Each process marks its device with an exclusive file while it holds the lease."""
    code = (
        "import os, sys, time; from pathlib import Path; from pfrnn.study.devices import acquire\n"
        "lease = acquire(poll_seconds=0.02)\n"
        f"mark = Path({str(tmp_path)!r}) / ('held-' + lease.devices[0])\n"
        "os.close(os.open(mark, os.O_CREAT | os.O_EXCL))\n"
        "time.sleep(0.1); mark.unlink()\n"
    )
    environment = os.environ | four | {"PYTHONPATH": str(ROOT)}
    started = time.monotonic()
    jobs = [subprocess.Popen([sys.executable, "-c", code], env=environment) for _ in range(12)]
    assert [job.wait() for job in jobs] == [0] * 12
    assert time.monotonic() - started < 60
