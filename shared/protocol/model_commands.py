"""Commands of operators to nodes: load or unload a model of their catalogue now. A node obeys each command once."""

import uuid
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
from redis.asyncio import Redis

from shared.protocol.registry import NodeInfo
from shared.redis import keys
from shared.redis.records import skipped_unreadable

Action = Literal["load", "unload"]

COMMAND_TTL = 600
"""Seconds for which a command to load a model waits for memory."""


class ModelCommand(msgspec.Struct, frozen=True):
    """A command. Nodes name its ``id`` in their records (``DeclaredModel.command``) when they have read it."""

    id: str
    action: Action


class CommandRefused(Exception):
    """No node can obey the command. The message says why, and what to do."""


async def send_command(redis: Redis, nodes: Iterable[NodeInfo], model: str, action: Action) -> ModelCommand:
    """Command ``nodes``, the registered ones, to load or unload the model with the own name ``model``.

    It replaces an earlier one. Raises :class:`CommandRefused`, and what redis-py raises.
    """
    declared = [(node.host, entry) for node in nodes for entry in node.models if entry.name == model]
    if not declared:
        raise CommandRefused(
            f"The model '{model}' is in no node's catalogue. Only models of a catalogue can be loaded and unloaded."
        )
    kept = [host for host, entry in declared if entry.keep == "always" or entry.least > 0]
    if action == "unload" and kept:
        raise CommandRefused(
            f"The model '{model}' is always loaded, as the catalogue of {kept[0]} says. To unload it, change its "
            "'keep' and 'replicas' there."
        )
    command = ModelCommand(uuid.uuid4().hex, action)
    await redis.set(keys.model_command(model), msgspec.json.encode(command), ex=COMMAND_TTL)
    return command


async def read_commands(redis: Redis, models: Sequence[str]) -> dict[str, ModelCommand]:
    """Return the last command for each of ``models`` that has one. Raises what redis-py raises."""
    commands = {}
    records = await redis.mget([keys.model_command(model) for model in models]) if models else ()
    for model, record in zip(models, records, strict=True):
        if record is None:
            continue
        with skipped_unreadable(keys.model_command(model)):
            commands[model] = msgspec.json.decode(record, type=ModelCommand)
    return commands
