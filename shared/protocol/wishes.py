"""Wishes of operators: that nodes load or unload a model of their catalogue now. Each node acts once on a wish."""

import uuid
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
from redis.asyncio import Redis

from shared.protocol.registry import NodeInfo
from shared.redis import keys
from shared.redis.records import UNREADABLE, report_unreadable

Action = Literal["load", "unload"]

WISH_TTL = 600
"""Seconds for which a wish to load a model waits for memory."""


class Wish(msgspec.Struct, frozen=True):
    """A wish. Nodes name its ``id`` in their records (``DeclaredModel.wish``) when they have read it."""

    id: str
    action: Action


class WishRefused(Exception):
    """No node can fulfil the wish. The message says why, and what to do."""


async def make_wish(redis: Redis, nodes: Iterable[NodeInfo], model: str, action: Action) -> Wish:
    """Store the wish that ``nodes``, the registered ones, load or unload the model with the own name ``model``.

    It replaces an earlier one. Raises :class:`WishRefused`, and what redis-py raises.
    """
    declared = [(node.host, entry) for node in nodes for entry in node.models if entry.name == model]
    if not declared:
        raise WishRefused(
            f"The model '{model}' is in no node's catalogue. Only models of a catalogue can be loaded and unloaded."
        )
    kept = [host for host, entry in declared if entry.keep == "always" or entry.least > 0]
    if action == "unload" and kept:
        raise WishRefused(
            f"The model '{model}' is always loaded, as the catalogue of {kept[0]} says. To unload it, change its "
            "'keep' and 'replicas' there."
        )
    wish = Wish(uuid.uuid4().hex, action)
    await redis.set(keys.wish(model), msgspec.json.encode(wish), ex=WISH_TTL)
    return wish


async def read_wishes(redis: Redis, models: Sequence[str]) -> dict[str, Wish]:
    """Return the last wish for each of ``models`` that has one. Raises what redis-py raises."""
    wishes = {}
    records = await redis.mget([keys.wish(model) for model in models]) if models else ()
    for model, record in zip(models, records, strict=True):
        if record is None:
            continue
        try:
            wishes[model] = msgspec.json.decode(record, type=Wish)
        except UNREADABLE as error:
            report_unreadable(keys.wish(model), error)
    return wishes
