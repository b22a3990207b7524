"""The container's environment is the Makefile's: the same step, with all that it reads."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def instructions(text: str) -> list[tuple[str, str]]:
    """(instruction, arguments) of a Dockerfile, continued lines joined, comments left out."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [
        (line.split(maxsplit=1)[0], line.split(maxsplit=1)[1])
        for line in joined.splitlines()
        if line.strip()
    ]


def faults(dockerfile: str, makefile: str) -> list[str]:
    """What makes the container's installation another one than the Makefile's."""
    rule = re.search(r"^\$\(READY\): (.*)$", makefile, re.MULTILINE)
    recipe = re.search(r"^\$\(READY\):.*\n\t(.*)$", makefile, re.MULTILINE)
    if rule is None or recipe is None:
        return ["the Makefile has no rule for $(READY)"]
    found = []
    steps = instructions(dockerfile)
    installs = [i for i, (word, text) in enumerate(steps) if word == "RUN" and "make venv" in text]
    if len(installs) != 1:
        return [f"expected one RUN make venv, found {len(installs)}"]
    for word, text in steps:
        if word == "RUN" and re.search(r"\b(pip|uv|conda)\b", text):
            found.append(f"installs by itself: {text}")
    copied = [
        pattern
        for word, text in steps[: installs[0]]
        if word == "COPY"
        for pattern in text.split()[:-1]
    ]
    # What the rule needs, and what its recipe runs.
    needed = {*rule[1].split(), "Makefile", *re.findall(r"workflow/scripts/\w+", recipe[1])}
    for name in sorted(needed):
        if not any(fnmatch.fnmatch(name, pattern) for pattern in copied):
            found.append(f"{name} is copied after the installation or not at all")
    return found


def test_the_container_installs_as_the_makefile_does() -> None:
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in ("Dockerfile", "Makefile")]
    assert faults(*texts) == []


def test_a_container_that_installs_otherwise_is_noticed() -> None:
    dockerfile, makefile = (
        (ROOT / name).read_text(encoding="utf-8") for name in ("Dockerfile", "Makefile")
    )
    without_lock = dockerfile.replace(" constraints.txt ./", " ./")
    assert "constraints.txt is copied after" in faults(without_lock, makefile)[0]
    by_itself = dockerfile.replace("RUN make venv", "RUN pip install torch && make venv")
    assert "installs by itself" in faults(by_itself, makefile)[0]
    assert faults(dockerfile.replace("make venv", "true"), makefile)


def test_cuda_is_the_one_that_torch_brings() -> None:
    base = re.search(r"^FROM nvidia/cuda:(\d+)\.", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    lock = (ROOT / "constraints.txt").read_text()
    runtime = re.search(r"^nvidia-cuda-runtime==(\d+)\.", lock, re.MULTILINE)
    assert base is not None
    assert runtime is not None
    assert base[1] == runtime[1]


def test_data_and_results_stay_outside() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {"data", "results", ".git", ".venv"} <= set(ignored)
