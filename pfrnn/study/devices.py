"""Which GPU a job gets on one machine: a lease that the kernel ends with the process.

Snakemake limits how many jobs hold a ``gpu`` at once but gives none of them a device. So each job
takes one lock file a slot (``flock``) before torch is imported, and sets ``CUDA_VISIBLE_DEVICES``.
The kernel releases the lock when the process ends, also after SIGKILL; choosing a card by its free
memory would race. A job that needs several devices takes all of them or none and tries again, so
two jobs never wait for each other's.

Where a scheduler (Slurm, Kubernetes, PBS, LSF) gave the process no more devices than it needs,
the lease steps aside. Where it gave more (Snakemake run inside one allocation of several cards),
or where the user set ``CUDA_VISIBLE_DEVICES``, those entries (indices, UUIDs or MIG names) are the
pool that jobs share.
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from pfrnn.errors import ConfigError, PfrnnError

SCHEDULER_VARIABLES = (
    "SLURM_JOB_ID",
    "KUBERNETES_SERVICE_HOST",
    "PBS_JOBID",
    "LSB_JOBID",
)
VISIBLE = "CUDA_VISIBLE_DEVICES"
SLOTS = "PFRNN_GPU_SLOTS"


class Slot(NamedTuple):
    """One place on one device."""

    device: str
    number: int

    @property
    def file_name(self) -> str:
        """Name of the lock file; MIG names hold slashes."""
        return f"{re.sub(r'[^A-Za-z0-9_.-]', '_', self.device)}.{self.number}.lock"


def scheduler(environment: Mapping[str, str]) -> str | None:
    """Return the variable by which a scheduler shows that it started this process, or None."""
    return next((name for name in SCHEDULER_VARIABLES if environment.get(name)), None)


def visible_devices(
    environment: Mapping[str, str], device_folder: Path = Path("/dev")
) -> tuple[str, ...]:
    """Return the devices that jobs may use, in the spelling that CUDA_VISIBLE_DEVICES takes.

    The variable's entries where it is set (empty or ``-1``: none, as CUDA reads it), else one
    index for each NVIDIA device file.
    """
    value = environment.get(VISIBLE)
    if value is None:
        files = [p.name for p in device_folder.glob("nvidia[0-9]*") if p.name[6:].isdigit()]
        return tuple(str(number) for number in range(len(files)))
    devices = []
    for entry in (part.strip() for part in value.split(",")):
        if entry in ("", "-1"):
            break  # CUDA ignores what stands after an invalid entry
        devices.append(entry)
    if len(set(devices)) != len(devices):
        raise ConfigError(f"{VISIBLE}: expected each device once, got {value!r}")
    return tuple(devices)


def slots_per_device(environment: Mapping[str, str]) -> int:
    """Read how many jobs may share one card (``PFRNN_GPU_SLOTS``, default 1)."""
    text = environment.get(SLOTS, "1")
    if not text.isdigit() or int(text) < 1:
        raise ConfigError(f"{SLOTS}: expected a whole number from 1, got {text!r}")
    return int(text)


def lock_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder of the lock files: one for each user and machine, never in results.

    Network file systems may not carry locks between processes; the temporary folder is local.
    Inside a scheduler's allocation the folder is the allocation's own: two allocations on one
    node may both call their first card 0.
    """
    folder = Path(
        environment.get("PFRNN_LOCK_DIR")
        or Path(tempfile.gettempdir()) / f"pfrnn-gpu-locks-{os.getuid()}"
    )
    name = scheduler(environment)
    if name is None:
        return folder
    return folder / re.sub(r"[^A-Za-z0-9_.-]", "_", f"{name}-{environment[name]}")


class Lease:
    """Devices held by this process until it ends or the lease is closed."""

    def __init__(self, devices: tuple[str, ...], handles: tuple[int, ...], reason: str) -> None:
        self.devices = devices
        self.reason = reason
        self._handles = handles

    def close(self) -> None:
        """Give the devices back."""
        for handle in self._handles:
            os.close(handle)
        self._handles = ()

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def acquire(
    count: int = 1,
    environment: Mapping[str, str] | None = None,
    *,
    wait_seconds: float = 3600.0,
    poll_seconds: float = 0.5,
    on_wait: Callable[[str], None] | None = None,
    device_folder: Path = Path("/dev"),
) -> Lease:
    """Take ``count`` distinct devices, waiting while others hold them.

    Args:
        count: devices to take, all or none.
        environment: the process's environment when None.
        wait_seconds: how long to wait for devices that are in use.
        poll_seconds: time between two tries.
        on_wait: called once with a sentence when the first try finds too few free devices.
        device_folder: where the device files lie.

    Returns:
        A lease. ``devices`` is empty when there is no GPU, and when a scheduler assigned them;
        ``reason`` says in words what happened.

    Raises:
        ConfigError: the machine has fewer devices than asked for (but at least one).
        PfrnnError: the devices stayed in use for ``wait_seconds``.
    """
    found = os.environ if environment is None else environment
    devices = visible_devices(found, device_folder)
    if not devices:
        return Lease((), (), "no GPU found: running on the CPU")
    name = scheduler(found)
    if name is not None and len(devices) <= count:
        return Lease((), (), f"devices assigned by the scheduler ({name} is set)")
    if count > len(devices):
        raise ConfigError(
            f"a job asks for {count} GPUs, this machine shows {len(devices)} "
            f"({', '.join(devices)}); lower the job's gpu resource or widen {VISIBLE}"
        )
    folder = lock_folder(found)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    slots = slots_per_device(found)
    deadline = time.monotonic() + wait_seconds
    told = False
    while True:
        taken = _try_all(devices, slots, count, folder)
        if taken is not None:
            names = tuple(slot.device for slot, _ in taken)
            handles = tuple(handle for _, handle in taken)
            return Lease(names, handles, f"leased {', '.join(names)}")
        if on_wait is not None and not told:
            on_wait(f"waiting for {count} of {len(devices)} GPUs: all are in use")
            told = True
        if time.monotonic() >= deadline:
            raise PfrnnError(
                f"no {count} of {len(devices)} GPUs became free in {wait_seconds:.0f} s; "
                f"start Snakemake with --resources gpu={len(devices) * slots} or less"
            )
        time.sleep(poll_seconds)


def _try_all(
    devices: tuple[str, ...], slots: int, count: int, folder: Path
) -> list[tuple[Slot, int]] | None:
    """Lock ``count`` slots on distinct devices, or none of them.

    Slots are tried level by level (slot 0 of every card before slot 1 of any), which spreads
    jobs over the cards.
    """
    taken: list[tuple[Slot, int]] = []
    for number in range(slots):
        for device in devices:
            if any(slot.device == device for slot, _ in taken):
                continue
            slot = Slot(device, number)
            handle = _try_lock(folder / slot.file_name)
            if handle is not None:
                taken.append((slot, handle))
                if len(taken) == count:
                    return taken
    for _, handle in taken:
        os.close(handle)
    return None


def _try_lock(path: Path) -> int | None:
    # Children must not inherit the lock (O_CLOEXEC is Python's default): a data-loading
    # subprocess that outlives the job would keep the card.
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


def lease_for_job(count: int = 1, on_wait: Callable[[str], None] | None = None) -> Lease:
    """Take devices for this process and make CUDA see only them. Call before importing torch."""
    lease = acquire(count, on_wait=on_wait)
    if lease.devices:
        os.environ[VISIBLE] = ",".join(lease.devices)
    return lease
