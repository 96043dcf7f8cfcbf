"""The table of open streams: which running requests end with their key."""

from arq.connections import ArqRedis

from api.build import build
from api.keys import ApiKey
from api.keys.store import new_key, put_record, revoke
from shared.protocol.errors import ProblemKind
from shared.runtime.settings import ApiSettings
from tests.support.wall_clock import WallClock


async def test_streams_end_with_their_key(redis: ArqRedis, wall_clock: WallClock) -> None:
    template = ApiKey(id="-", digest="0" * 64)
    lasting, _ = new_key(template)
    expiring, _ = new_key(ApiKey(id="-", digest="0" * 64, expires=float(int(lasting.created + 60))))
    revoked, _ = new_key(template)
    for key in (lasting, expiring, revoked):
        await put_record(redis, key, by="test")
    replica = build(redis, ApiSettings(), "api-1")
    keyring, table = replica.keyring, replica.chat.streams
    streams = {
        tenant: table.open([f"job of {tenant}"], "m", tenant=tenant)
        for tenant in ("", lasting.id, expiring.id, revoked.id)
    }

    async def ended() -> set[str]:
        await keyring.refresh()
        table.fail_without_key(keyring.allows)
        return {tenant for tenant, stream in streams.items() if stream.problem is not None}

    assert await ended() == set()
    await revoke(redis, revoked.id, by="test")
    assert await ended() == {revoked.id}
    wall_clock.advance(60)
    assert await ended() == {revoked.id, expiring.id}
    problem = streams[revoked.id].problem
    assert problem is not None
    assert problem.kind is ProblemKind.UNAUTHORIZED
