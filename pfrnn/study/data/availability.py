"""Which of a study's data sets can be had here, and which substitutes stand in for the others.

The workflow asks when it starts: nothing is read or downloaded, and an address counts as
reachable when a connection to its host opens within three seconds. A tier may name substitutes
(``study.substitutes``), which are used only where a listed set is missing.
"""

from __future__ import annotations

import functools
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import quote, urlsplit

from pfrnn.study.config import Config, Study
from pfrnn.study.data.base import Card
from pfrnn.study.data.download import WHEEL
from pfrnn.study.data.fetch import MIRROR, find_in_folder, mirror, zip_candidates
from pfrnn.study.data.registry import dataset
from pfrnn.study.data.state import cures, missing_files

TIMEOUT = 3.0
Where = Literal["simulated", "disk", "mirror", "address", "missing"]


class Availability(NamedTuple):
    """Where a data set would come from, with a sentence that says why."""

    where: Where
    reason: str


class Choice(NamedTuple):
    """What of a study can run here.

    Attributes:
        missing: listed set -> why it can't be had.
        stand_ins: substitutes that run in their place; empty when nothing is missing.
    """

    missing: dict[str, str]
    stand_ins: tuple[str, ...]


def availability(name: str, raw_dir: Path | str = "data/raw") -> Availability:
    """Say whether a data set can be had: simulated, on disk, in the mirror, at an address.

    Args:
        name: a registered data set.
        raw_dir: parent of the raw folders.
    """
    card = dataset(name).card
    folder = Path(raw_dir) / name
    if not card.files:
        return Availability("simulated", "simulated here, needs no file")
    if all(find_in_folder(card, folder, missing) for missing in missing_files(card, folder)):
        return Availability("disk", f"in {folder}")
    place = mirror()
    if place and _mirror_has(card, place):
        return Availability("mirror", f"in the mirror that {MIRROR} names")
    for address in card.addresses:
        url = _index_url() if address.url.startswith(WHEEL) else address.url
        if _reachable(url):
            return Availability("address", f"at {address.url}")
    hosts = sorted({urlsplit(address.url).hostname or "" for address in card.addresses} - {""})
    asked = f"no connection to {', '.join(hosts)}" if hosts else "it has no address"
    held = f"the mirror ({MIRROR}) has no {name}/" if place else f"{MIRROR} is not set"
    return Availability("missing", f"not in {folder}; {held}; {asked}. {cures(card, folder)}")


def _mirror_has(card: Card, place: str) -> bool:
    names = [file.name for file in card.files if not file.optional]
    if not place.startswith(("http://", "https://")):
        return all(find_in_folder(card, Path(place) / card.name, name) for name in names)
    # One file answers for the set: 88 requests would hold up every start.
    candidates = [names[0], *(archive for archive, _ in zip_candidates(card, names[0]))]
    base = f"{place.rstrip('/')}/{card.name}"
    return any(_serves(f"{base}/{quote(candidate)}") for candidate in candidates)


@functools.cache
def _serves(url: str) -> bool:
    request = urllib.request.Request(url, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            return bool(response.status == 200)
    except (OSError, ValueError):
        return False


@functools.cache
def _index_url() -> str:
    """The address of the package index that pip would ask."""
    command = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    configured = (
        os.environ.get("PIP_INDEX_URL")
        or subprocess.run(command, capture_output=True, text=True).stdout.strip()
    )
    return configured or "https://pypi.org/simple"


def _reachable(url: str) -> bool:
    parts = urlsplit(url)
    # Behind a proxy only the proxy can be asked.
    proxy = urllib.request.getproxies().get(parts.scheme)
    if proxy and not urllib.request.proxy_bypass(parts.hostname or ""):
        parts = urlsplit(proxy if "//" in proxy else f"//{proxy}")
    return _connects(parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443))


@functools.cache
def _connects(host: str, port: int) -> bool:
    """Open one connection; name resolution has no time-out of its own, hence the thread."""
    pool = ThreadPoolExecutor(1)
    try:
        attempt = pool.submit(socket.create_connection, (host, port), TIMEOUT)
        attempt.result(TIMEOUT).close()
    except (OSError, Late):
        return False
    finally:
        pool.shutdown(wait=False)
    return True


def substitutes_for(study: Study, missing: Iterable[str]) -> tuple[str, ...]:
    """Return the study's unlisted substitutes if a listed set is missing, else nothing."""
    if not set(study.datasets) & set(missing):
        return ()
    return tuple(name for name in study.substitutes if name not in study.datasets)


def choose(
    study: Study, prepared: Mapping[str, Path], raw_dir: Path | str, fetched: bool = False
) -> Choice:
    """Ask what can be had; a set with prepared arrays or raw files on disk is not missing.

    Args:
        study: listed sets and substitutes.
        prepared: set -> folder of its prepared arrays. A set that isn't among them is not asked
            for: nothing of it is left to run.
        raw_dir: parent of the raw folders.
        fetched: ``pfrnn fetch`` has just been tried: what isn't on disk by now can't be had.
    """

    def why_not(name: str) -> str:
        if (prepared[name] / "arrays.npz").exists():
            return ""
        found = availability(name, raw_dir)
        if found.where == "address" and fetched:
            # The host answers, but the file did not come.
            return f"fetching it {found.reason} failed; see `pfrnn fetch {name}`"
        return found.reason if found.where == "missing" else ""

    asked = {name: why_not(name) for name in study.datasets if name in prepared}
    missing = {name: reason for name, reason in asked.items() if reason}
    stand_ins = substitutes_for(study, missing)
    return Choice(missing, tuple(n for n in stand_ins if n in prepared and not why_not(n)))


def with_sets(config: Config, names: Iterable[str]) -> Config:
    """Return the configuration of a study that lists ``names`` too."""
    study = config.study
    listed = tuple(dict.fromkeys((*study.datasets, *names)))
    return config.model_copy(update={"study": study.model_copy(update={"datasets": listed})})
