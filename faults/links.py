"""How the processes of a run reach their store: directly, through proxies, over TLS, or through Sentinel."""

import ssl
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import redis

from faults.proxy import Proxy
from tests.support.eventually import wait_until
from tests.support.fleet import free_port
from tests.support.redis_types import command
from tests.support.store import Store

SERVICE = "main"


class Links:
    """Gives each process its URL of the store."""

    def __init__(self, kind: str, store: Store, folder: Path) -> None:
        """``kind`` is ``direct``, ``proxy``, ``tls``, ``handover`` or ``sentinel``."""
        self._kind = kind
        self.master = store
        """The server that takes writes."""
        self._folder = folder
        self._tls: ssl.SSLContext | None = None
        self.proxies: list[Proxy] = []
        self.standby: Standby | None = None
        if kind == "tls":
            self._tls = _certificate(folder)
        elif kind in ("handover", "sentinel"):
            self.standby = Standby(store, folder, sentinel=kind == "sentinel")

    async def open(self) -> tuple[str, Proxy | None]:
        """Return a URL for one more process, and its proxy where it has one."""
        if self.standby is not None and self.standby.sentinel_port:
            return f"redis+sentinel://127.0.0.1:{self.standby.sentinel_port}/{SERVICE}/0", None
        if self._kind == "direct":
            return self.master.url, None
        proxy = Proxy(self.master.port, self._tls)
        await proxy.start()
        self.proxies.append(proxy)
        if self._tls is None:
            return f"redis://127.0.0.1:{proxy.port}/0", proxy
        return f"rediss://localhost:{proxy.port}/0?ssl_ca_certs={self._folder / 'certificate.pem'}", proxy

    def hand_over(self) -> None:
        """Have new connections lead to the replica, which has become the master. Those that are open stay."""
        assert self.standby is not None, "the scenario has no replica"
        self.master, self.standby.replica = self.standby.replica, self.master
        for proxy in self.proxies:
            proxy.target = self.master.port

    async def close(self) -> None:
        """End proxies and servers."""
        for proxy in self.proxies:
            await proxy.stop()
        if self.standby is not None:
            self.standby.stop()
            self.master.kill()


class Standby:
    """A replica of the store, and perhaps a Sentinel that promotes it when the store is gone."""

    def __init__(self, master: Store, folder: Path, *, sentinel: bool) -> None:
        options = ("--replicaof", f"127.0.0.1 {master.port}", "--repl-diskless-sync-delay", "0")
        self.replica = Store(folder / "replica", free_port(), *options, server=master.server)
        self.replica.start()
        self._sentinel: subprocess.Popen[bytes] | None = None
        self.sentinel_port = free_port() if sentinel else 0
        if sentinel:
            self._start_sentinel(master, folder)
        wait_until(self.is_ready, "the replica to have the master's data, and the Sentinel to know it")

    def _start_sentinel(self, master: Store, folder: Path) -> None:
        configuration = folder / "sentinel.conf"
        configuration.write_text(
            f"port {self.sentinel_port}\nbind 127.0.0.1\ndir {folder}\n"
            f"sentinel monitor {SERVICE} 127.0.0.1 {master.port} 1\n"
            f"sentinel down-after-milliseconds {SERVICE} 1000\nsentinel failover-timeout {SERVICE} 5000\n"
        )
        with (folder / "sentinel.log").open("wb") as log:
            self._sentinel = subprocess.Popen([master.server, str(configuration), "--sentinel"], stdout=log, stderr=log)

    def stop(self) -> None:
        """End both."""
        if self._sentinel is not None:
            self._sentinel.kill()
            self._sentinel.wait()
        self.replica.kill()

    def is_ready(self) -> bool:
        """Return whether the replica has the master's data, and the Sentinel knows it."""
        with suppress(redis.RedisError):
            known = not self._sentinel or self.ask_sentinel("REPLICAS", SERVICE)
            role = command(self.replica.client(), "ROLE")
            return bool(known and role[0] == b"slave" and role[3] == b"connected")
        return False

    def ask_sentinel(self, *words: str) -> Any:
        """Return the Sentinel's reply to a command."""
        with redis.Redis(port=self.sentinel_port) as sentinel:
            return command(sentinel, "SENTINEL", *words)


def _certificate(folder: Path) -> ssl.SSLContext:
    """A TLS server for ``localhost`` with a certificate made now; needs the ``openssl`` command."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    request = "req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    command = ["openssl", *request.split(), "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context
