"""A real S3 server, moto's, as a process."""

import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shared.runtime.processes import die_with_parent
from tests.support.eventually import PATIENCE
from tests.support.fleet import free_port

BUCKET = "files"


class S3Server:
    """A server on a free port of 127.0.0.1 with one bucket, whose objects are in its memory."""

    def __init__(self, log: Path) -> None:
        self._port = free_port()
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which clients find it."""
        return {
            "AWS_ENDPOINT_URL": self._url(),
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
        }

    def start(self) -> None:
        """Start it and create the bucket."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self._port)],
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,
            )
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self._request("PUT", f"/{BUCKET}")
                return
            except OSError:
                assert time.monotonic() < deadline, self._log.read_text()
                time.sleep(0.05)

    def stop(self) -> None:
        """End it; its objects are lost."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def objects(self) -> list[str]:
        """The names of all objects, without their folders."""
        page = self._request("GET", f"/{BUCKET}?list-type=2&max-keys=1000").decode()
        keys = [part.partition("</Key>")[0] for part in page.split("<Key>")[1:]]
        return sorted(name for name in (key.split("/", 2)[2] for key in keys) if not name.startswith("."))

    def uploads(self) -> int:
        """The number of multipart uploads that were begun and not completed."""
        return self._request("GET", f"/{BUCKET}?uploads").decode().count("<Upload>")

    def _url(self, path: str = "") -> str:
        return f"http://127.0.0.1:{self._port}{path}"

    def _request(self, method: str, path: str) -> bytes:
        with urllib.request.urlopen(urllib.request.Request(self._url(path), method=method)) as response:
            body: bytes = response.read()
            return body


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """A server that is ended with the block, and whose environment is this process's."""
    server = S3Server(folder / "s3.log")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        server.start()
        try:
            yield server
        finally:
            server.stop()
