"""Guards: whose request it is."""

import pytest
from arq.connections import ArqRedis
from fakeredis import FakeServer

from api.http.guards import identify, is_loopback
from api.keys import ApiKey, Keyring
from api.keys.store import new_key, put_record
from shared.protocol.errors import ProblemKind, RequestRefused


@pytest.fixture
def keyring(redis: ArqRedis) -> Keyring:
    return Keyring(redis, plain="", file="", required=False)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("0.0.0.0", False),
        ("10.1.2.3", False),
        ("host.example", False),
        ("127.0.0.1", True),
        ("::1", True),
        ("LocalHost", True),
    ],
)
def test_loopback_addresses_are_recognised(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


async def test_a_service_without_keys_takes_any(keyring: Keyring) -> None:
    assert await identify(keyring, {"authorization": "Bearer anything"}) is None


async def test_an_unknown_key_is_shown_masked_only(keyring: Keyring, redis: ArqRedis) -> None:
    made, secret = new_key(ApiKey(id="key-1", digest="0" * 64))
    await put_record(redis, made, by="test")
    for header in ("api-key", "x-api-key"):
        assert await identify(keyring, {header: secret}) == made
    with pytest.raises(RequestRefused) as refusal:
        await identify(keyring, {"authorization": f"Bearer {secret}x"})
    assert refusal.value.problem.kind is ProblemKind.UNAUTHORIZED
    assert secret[6:-2] not in refusal.value.problem.message


async def test_before_the_keys_are_known_nobody_is_let_in(keyring: Keyring, server: FakeServer) -> None:
    server.connected = False
    with pytest.raises(RequestRefused) as refusal:
        await identify(keyring, {})
    assert refusal.value.problem.kind is ProblemKind.STORE_UNAVAILABLE
