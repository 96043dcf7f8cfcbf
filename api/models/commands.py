"""Commands of operators to load and unload models, written to the audit log."""

from collections.abc import Iterable

from redis.asyncio import Redis

from api.keys.audit import log_change
from shared.protocol.model_commands import Action, ModelCommand, send_command
from shared.protocol.registry import NodeInfo


async def command_model(
    redis: Redis, nodes: Iterable[NodeInfo], model: str, action: Action, *, by: str
) -> ModelCommand:
    """Command ``nodes`` to load or unload ``model``, and log that ``by`` asked (:mod:`api.keys.audit`).

    Raises as :func:`shared.protocol.model_commands.send_command` does.
    """
    command = await send_command(redis, nodes, model, action)
    await log_change(redis, by, f"model.{action}", model)
    return command
