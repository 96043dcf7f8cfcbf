"""The store's configuration for systemd: an append-only file, access rules, a Unix socket, and TLS for other hosts."""

import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from shared.runtime.processes import die_with_parent
from tests.support.eventually import wait_until
from tests.support.fleet import free_port
from tests.support.paths import ROOT
from tests.support.store_rules import rules_file
from tests.support.store_servers import store_server


def test_the_store_runs_with_its_configuration(tmp_path: Path) -> None:
    port, socket = free_port(), tmp_path / "store.sock"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "store.key", "-out", "store.crt"]
    subprocess.run([*made, "-days", "2", "-subj", "/CN=localhost"], cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "ca.pem").write_bytes((tmp_path / "store.crt").read_bytes())
    rules_file(tmp_path)
    text = (ROOT / "deploy" / "systemd" / "store.conf").read_text(encoding="utf-8")
    for folder in ("/var/lib/vinoqueue-store", "/run/vinoqueue-store", "/etc/vinoqueue"):
        text = text.replace(folder, str(tmp_path))
    text = text.replace("tls-port 6380", f"tls-port {port}").replace("supervised systemd", "supervised no")
    (tmp_path / "store.conf").write_text(text)
    server = store_server("oldest-redis")  # built with TLS
    log = tmp_path / "log"
    with log.open("wb") as output:
        store = subprocess.Popen(
            [server, tmp_path / "store.conf"], stdout=output, stderr=output, preexec_fn=die_with_parent
        )
    try:
        with redis.Redis.from_url(f"unix://vinoqueue-api:API_PASSWORD@{socket}") as local:

            def kept() -> bool:
                # The file is there before the store listens.
                with suppress(redis.ConnectionError):
                    return bool(local.set("vinoqueue:state:a", "kept"))
                return False

            wait_until(kept, "the store to listen", details=log.read_text)
        remote = f"rediss://vinoqueue-worker:WORKER_PASSWORD@localhost:{port}/0?ssl_ca_certs={tmp_path / 'ca.pem'}"
        with redis.Redis.from_url(remote) as client:
            assert client.get("vinoqueue:state:a") == b"kept"
        stranger = redis.Redis.from_url(remote.replace("vinoqueue-worker:WORKER_PASSWORD@", ""))
        with stranger, pytest.raises(redis.AuthenticationError):
            stranger.get("vinoqueue:state:a")
        assert [*tmp_path.glob("appendonlydir/*.aof")]
    finally:
        store.terminate()
        store.wait()
