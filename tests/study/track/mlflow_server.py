"""A real MLflow server on loopback, and a PostgreSQL cluster that belongs to a test."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

START_SECONDS = 180.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """``mlflow server``; it can be killed and started again on the same port."""

    def __init__(self, backend: str, folder: Path) -> None:
        self.folder = folder
        self.backend = backend
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "mlflow", "server", "--workers", "1"]
        command += ["--backend-store-uri", self.backend, "--port", str(self.port)]
        command += ["--artifacts-destination", str(self.folder / "artifacts")]
        mine = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
        log = (self.folder / "server.log").open("ab")
        self.process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=os.environ | mine,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._wait()

    def _wait(self) -> None:
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            try:
                with urllib.request.urlopen(f"{self.uri}/health", timeout=2):
                    return
            except OSError:
                time.sleep(0.3)
        raise RuntimeError((self.folder / "server.log").read_text())

    def kill(self) -> None:
        """SIGKILL the server and its workers, as a crash would."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


class Postgres:
    """A PostgreSQL cluster on loopback, run by a user that is not root."""

    def __init__(self) -> None:
        # Not below pytest's folder: that one is private, and a socket's path has to be short.
        self.folder = Path(tempfile.mkdtemp(prefix="pfrnn-pg-"))
        self.port = free_port()

    @staticmethod
    def absent() -> str:
        """Why there can be none here; empty when there can."""
        if not Postgres.binaries():
            return "PostgreSQL's initdb and pg_ctl are not installed (Debian: postgresql)"
        try:
            import psycopg2  # noqa: F401
        except ImportError:
            return "psycopg2 is not installed"
        if os.geteuid() == 0 and not shutil.which("setpriv"):
            return "PostgreSQL does not run as root, and there is no setpriv to change the user"
        return ""

    @staticmethod
    def binaries() -> Path | None:
        """The newest version's folder: Debian keeps it off the PATH."""
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=_version)
        on_path = shutil.which("initdb")
        if found:
            return found[-1].parent
        return Path(on_path).parent if on_path else None

    def start(self) -> str:
        """Make and start the cluster; return the URI of its database."""
        self._tool("initdb", "-D", "data", "-A", "trust", "-U", "tester", "-E", "UTF8")
        options = f"-c listen_addresses=127.0.0.1 -p {self.port} -k {self.folder} -c fsync=off"
        self._tool("pg_ctl", "-D", "data", "-w", "-l", "postgres.log", "-o", options, "start")
        return f"postgresql://tester@127.0.0.1:{self.port}/postgres"

    def stop(self) -> None:
        self._tool("pg_ctl", "-D", "data", "-m", "immediate", "stop")
        shutil.rmtree(self.folder)

    def _tool(self, name: str, *arguments: str) -> None:
        binaries = self.binaries()
        if binaries is None:
            raise RuntimeError(self.absent())
        command = [str(binaries / name), *arguments]
        if os.geteuid() == 0:
            shutil.chown(self.folder, "nobody")
            command = ["setpriv", "--reuid=nobody", "--clear-groups", *command]
        # Into a file: the server that pg_ctl leaves behind would keep a pipe open.
        log = self.folder / f"{name}.log"
        with log.open("ab") as target:
            done = subprocess.run(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=target,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if done.returncode:
            raise RuntimeError(log.read_text())


def _version(path: Path) -> int:
    return int(path.parents[1].name) if path.parents[1].name.isdigit() else 0
