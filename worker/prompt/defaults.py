"""Adds what an operator has set for a model to a chat that does not set it."""

from collections.abc import Mapping
from typing import Any

import msgspec

from shared.protocol.request import ChatRequest, Message
from worker.prompt.turns import INSTRUCTION_ROLES

_REASONING = frozenset({"reasoning_effort", "enable_thinking", "thinking"})
"""Variables that belong together: a client that sets one of them replaces all."""


def with_defaults(request: ChatRequest, variables: Mapping[str, Any], system: str) -> ChatRequest:
    """Return ``request`` with the variables of the chat template that it leaves out, and with ``system`` as its
    system message if it has none. A plain completion stays as it is."""
    if request.prompt is not None:
        return request
    messages = request.messages
    if system and not any(message.role in INSTRUCTION_ROLES for message in messages):
        messages = (Message(role="system", content=system), *messages)
    return msgspec.structs.replace(
        request, messages=messages, template_kwargs=_variables(request.template_kwargs, variables)
    )


def _variables(given: str | None, defaults: Mapping[str, Any]) -> str | None:
    if not defaults:
        return given
    try:
        own = msgspec.json.decode(given or "{}", type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return given  # refused by what reads it
    kept = {name: value for name, value in defaults.items() if not (name in _REASONING and _REASONING & own.keys())}
    return msgspec.json.encode(kept | own).decode()
