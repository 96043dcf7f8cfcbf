"""Truncation: drops the oldest turns of a conversation that is too long, if its client allows that."""

from collections.abc import Callable, Sequence

import msgspec

from shared.protocol.errors import ProblemKind, RequestRefused
from shared.protocol.request import ChatRequest, Message
from worker.prompt.maker import Prompt
from worker.prompt.turns import INSTRUCTION_ROLES

Prepare = Callable[[ChatRequest], Prompt]
"""Returns the prompt of a request, or raises :class:`RequestRefused`."""


def fit_prompt(request: ChatRequest, prepare: Prepare) -> Prompt:
    """Return the prompt of ``request``, or of its instructions and as many of its last turns as fit the context.

    A turn begins with a message of the user, so that calls and their results stay together. Raises
    :class:`RequestRefused`, also if the last turn alone is too long.
    """
    try:
        return prepare(request)
    except RequestRefused as refusal:
        if not request.truncate or refusal.problem.kind is not ProblemKind.CONTEXT_LENGTH:
            raise
        cuts = _cuts(request.messages)
        found: Prompt | None = None
        # An exponential search from the end tokenises little more than the turns that fit.
        kept, step, growing = 0, 1, True
        while step:
            candidate = kept + step
            prompt = _from(request, cuts[-candidate], prepare) if candidate <= len(cuts) else None
            growing = growing and prompt is not None
            if prompt is not None:
                found, kept = prompt, candidate
            step = step * 2 if growing else step // 2
        if found is None:
            # The last turn leaves no room for as many tokens as the request asks for. One is enough.
            found = _from(msgspec.structs.replace(request, truncate=False), cuts[-1] if cuts else 0, prepare)
        if found is None:
            raise
        return found


def _cuts(messages: Sequence[Message]) -> list[int]:
    """Return the indices of the messages at which turns start, without the first turn."""
    return [place for place, message in enumerate(messages) if message.role == "user"][1:]


def _from(request: ChatRequest, cut: int, prepare: Prepare) -> Prompt | None:
    """Return the prompt of the instructions and of the messages from ``cut`` on; None if it is too long."""
    head = tuple(message for message in request.messages[:cut] if message.role in INSTRUCTION_ROLES)
    dropped = sum(len(message.images) for message in request.messages[:cut] if message.role not in INSTRUCTION_ROLES)
    try:
        prompt = prepare(msgspec.structs.replace(request, messages=(*head, *request.messages[cut:])))
    except RequestRefused as refusal:
        if refusal.problem.kind is not ProblemKind.CONTEXT_LENGTH:
            raise
        return None
    return prompt._replace(images=tuple((number + dropped, place) for number, place in prompt.images))
