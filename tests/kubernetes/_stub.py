"""A Kubernetes API server on loopback that notes every job and runs its command as a process."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Pods:
    """Runs each job's container as a process in a folder of its own, with its environment."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self._environment = environment
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, job: dict[str, Any]) -> None:
        name = job["metadata"]["name"]
        (container,) = job["spec"]["template"]["spec"]["containers"]
        work = self.folder / name
        work.mkdir(parents=True)
        self._running[name] = subprocess.Popen(
            [*container["command"], *container["args"]],
            cwd=work,
            env=os.environ | self._environment,
            stdout=(self.folder / f"{name}.log").open("wb"),
            stderr=subprocess.STDOUT,
        )

    def status(self, name: str) -> dict[str, int]:
        code = self._running[name].poll()
        return {"active": 1} if code is None else {"failed": 1} if code else {"succeeded": 1}


class Stub:
    """The server; ``jobs`` and ``secrets`` hold the objects that were submitted."""

    def __init__(self, pods: Pods) -> None:
        self.jobs: list[dict[str, Any]] = []
        self.secrets: list[dict[str, Any]] = []
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self, value: Any, code: int = 200) -> None:
                body = json.dumps(value).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                kind = self.path.rstrip("/").split("/")[-1].partition("?")[0]
                (stub.jobs if kind == "jobs" else stub.secrets).append(body)
                if kind == "jobs":
                    pods.start(body)
                self._answer(body, 201)

            def do_GET(self) -> None:
                if self.path.partition("?")[0].endswith("/pods"):
                    self._answer({"kind": "PodList", "apiVersion": "v1", "items": []})
                else:
                    status = pods.status(self.path.split("/jobs/")[1].split("/")[0])
                    self._answer({"kind": "Job", "apiVersion": "batch/v1", "status": status})

            def do_DELETE(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self._answer({"kind": "Status", "apiVersion": "v1", "status": "Success"})

            def log_message(self, *anything: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def kubeconfig(self, path: Path) -> None:
        """Write the file by which a client finds this server."""
        address = f"http://127.0.0.1:{self._server.server_port}"
        named = {"name": "stub"}
        value = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "stub",
            "clusters": [named | {"cluster": {"server": address}}],
            "users": [named | {"user": {}}],
            "contexts": [named | {"context": {"cluster": "stub", "user": "stub"}}],
        }
        path.write_text(json.dumps(value))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
