"""A stand-in for the Hugging Face hub: the few endpoints that fetching a model needs, served from memory."""

import hashlib
import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import unquote, urlsplit

COMMIT = "c0ffee" + "0" * 34
Repositories = Mapping[str, Mapping[str, bytes]]


class HubServer:
    """Serves ``repositories`` (id to file name to content) at ``endpoint``; revisions are "main" and ``COMMIT``.

    ``gated`` repositories need ``token``. ``downloads`` counts the bodies sent, by file name.
    """

    def __init__(self, repositories: Repositories, *, gated: frozenset[str] = frozenset(), token: str = "") -> None:
        self.downloads: dict[str, int] = {}
        self.digests: dict[str, str] = {}
        """What the server says is the SHA-256 of a file; the others count as small, and have none."""
        self.sizes: dict[str, int] = {}
        """What the server says is the size of a file, if not its own."""
        handler = type("Handler", (_Handler,), {"hub": self})
        self.repositories = repositories
        self.gated = gated
        self.token = token
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: ClassVar[HubServer]
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._respond(with_body=False)

    def do_GET(self) -> None:
        self._respond(with_body=True)

    def log_message(self, *_: object) -> None:
        """Keep the test output clean."""

    def _respond(self, *, with_body: bool) -> None:
        parts = unquote(urlsplit(self.path).path).strip("/").split("/")
        api = parts[:2] == ["api", "models"]
        parts = parts[2:] if api else parts
        repository = "/".join(parts[:2])
        rest = parts[2:]
        if repository not in self.hub.repositories:
            return self._error(401, "RepoNotFound", "Repository not found")
        if repository in self.hub.gated and self.headers.get("Authorization") != f"Bearer {self.hub.token}":
            return self._error(403, "GatedRepo", "Access to this model is restricted")
        if len(rest) > 1 and rest[1] not in ("main", COMMIT):
            return self._error(404, "RevisionNotFound", "Invalid rev id")
        files = self.hub.repositories[repository]
        if api:
            return self._api(repository, rest, files, with_body)
        name = "/".join(rest[2:])
        if name not in files:
            return self._error(404, "EntryNotFound", "Entry not found")
        if with_body:
            self.hub.downloads[name] = self.hub.downloads.get(name, 0) + 1
        return self._send(200, files[name], with_body, {"ETag": f'"{hashlib.sha1(files[name]).hexdigest()}"'})

    def _api(self, repository: str, rest: list[str], files: Mapping[str, bytes], with_body: bool) -> None:
        body: object
        if rest and rest[0] == "tree":
            body = [
                {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                for name, data in files.items()
            ]
        else:
            siblings = [self._listed(name, len(data)) for name, data in files.items()]
            body = {"id": repository, "sha": COMMIT, "siblings": siblings}
        self._send(200, json.dumps(body).encode(), with_body, {"Content-Type": "application/json"})

    def _listed(self, name: str, size: int) -> dict[str, object]:
        size = self.hub.sizes.get(name, size)
        listed: dict[str, object] = {"rfilename": name, "size": size}
        if (digest := self.hub.digests.get(name)) is not None:
            listed["lfs"] = {"sha256": digest, "size": size, "pointerSize": 0}
        return listed

    def _error(self, status: int, code: str, message: str) -> None:
        self._send(status, b"{}", True, {"X-Error-Code": code, "X-Error-Message": message})

    def _send(self, status: int, body: bytes, with_body: bool, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "X-Repo-Commit": COMMIT, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body and self.command != "HEAD":
            self.wfile.write(body)
