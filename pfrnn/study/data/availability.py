"""Whether a data set can be had here, asked quickly: the workflow calls this when it starts.

Nothing is read or downloaded; an address counts as reachable when a connection to its host opens
within three seconds. Each host is asked once a process.
"""

from __future__ import annotations

import functools
import os
import socket
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import quote, urlsplit

from pfrnn.study.data.base import Card
from pfrnn.study.data.mirror import VARIABLE, zip_candidates
from pfrnn.study.data.rawstate import cures, missing_files
from pfrnn.study.data.registry import dataset
from pfrnn.study.data.wheel import SCHEME, index_url

TIMEOUT = 3.0
Where = Literal["simulated", "disk", "mirror", "address", "missing"]


class Availability(NamedTuple):
    """Where a data set would come from.

    Attributes:
        where: simulated, disk, mirror, address or missing.
        reason: one sentence; for a missing set also the two ways to add it.
    """

    where: Where
    reason: str

    @property
    def available(self) -> bool:
        """False only for a missing set."""
        return self.where != "missing"


def availability(name: str, raw_dir: Path | str = "data/raw") -> Availability:
    """Say whether a data set can be had: simulated, on disk, in the mirror, at an address.

    Args:
        name: a registered data set.
        raw_dir: parent of the raw folders.
    """
    card = dataset(name).card
    if not card.files:
        return Availability("simulated", "simulated here, needs no file")
    folder = Path(raw_dir) / name
    if not missing_files(card, folder):
        return Availability("disk", f"in {folder}")
    mirror = os.environ.get(VARIABLE, "").strip()
    if mirror and _mirror_has(card, mirror):
        return Availability("mirror", f"in the mirror that {VARIABLE} names")
    for address in card.addresses:
        url = index_url() if address.url.startswith(SCHEME) else address.url
        if _reachable(url):
            return Availability("address", f"at {address.url}")
    hosts = sorted({urlsplit(address.url).hostname or "" for address in card.addresses} - {""})
    asked = f"no connection to {', '.join(hosts)}" if hosts else "it has no address"
    held = f"the mirror ({VARIABLE}) has no {name}/" if mirror else f"{VARIABLE} is not set"
    return Availability("missing", f"not in {folder}; {held}; {asked}. {cures(card, folder)}")


def _mirror_has(card: Card, mirror: str) -> bool:
    for name in (file.name for file in card.files if not file.optional):
        candidates = [name, *(archive for archive, _ in zip_candidates(card, name) if archive)]
        if mirror.startswith(("http://", "https://")):
            # One file answers for the set: 88 requests would hold up every start.
            base = f"{mirror.rstrip('/')}/{card.name}"
            return any(_serves(f"{base}/{quote(candidate)}") for candidate in candidates)
        folder = Path(mirror.removeprefix("file://")).expanduser() / card.name
        if not any((folder / candidate).is_file() for candidate in candidates):
            return False
    return True


@functools.cache
def _serves(url: str) -> bool:
    request = urllib.request.Request(url, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            return bool(response.status == 200)
    except (OSError, ValueError):
        return False


def _reachable(url: str) -> bool:
    parts = urlsplit(url)
    if parts.hostname is None:
        return False
    # Behind a proxy only the proxy can be asked.
    proxy = urllib.request.getproxies().get(parts.scheme)
    if proxy and not urllib.request.proxy_bypass(parts.hostname):
        parts = urlsplit(proxy if "//" in proxy else f"//{proxy}")
    port = parts.port or (80 if parts.scheme == "http" else 443)
    return _connects(parts.hostname or "", port)


@functools.cache
def _connects(host: str, port: int) -> bool:
    """Open one connection; name resolution has no time-out of its own, hence the thread."""
    opened: list[bool] = []

    def connect() -> None:
        try:
            socket.create_connection((host, port), timeout=TIMEOUT).close()
        except OSError:
            return
        opened.append(True)

    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(TIMEOUT)
    return bool(opened)
