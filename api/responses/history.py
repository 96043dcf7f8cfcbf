"""The stored items that a request continues or refers to."""

from collections.abc import Mapping
from typing import Any

from api.dialects.responses import Draft, History, previous_not_found
from api.dialects.responses.schema import ResponsesRequest
from api.dialects.responses.stored import input_items, output_items
from api.responses.record import StoredResponse, response_of_item
from api.responses.store import ResponseStore
from shared.protocol.errors import ProblemKind, refuse

MAX_TURNS = 1024
"""Maximum number of responses in one conversation."""


async def history_of(store: ResponseStore, owner: str, draft: Draft[ResponsesRequest]) -> History:
    """Return the stored items that ``draft`` needs.

    Raises :class:`RequestRefused` for an unknown previous response and when the store is unreachable.
    """
    turns = await _turns(store, owner, draft.previous)
    if turns:
        await store.keep(owner, [turn.id for turn in turns])
    return History(
        earlier=tuple(item for turn in turns for item in (*input_items(turn), *output_items(turn))),
        referenced=await _referenced(store, owner, draft.references),
    )


async def _turns(store: ResponseStore, owner: str, previous: str | None) -> list[StoredResponse]:
    """Return the responses of a conversation, the first one first."""
    turns: list[StoredResponse] = []
    while previous:
        turn = await store.get(owner, previous)
        if turn is None:
            raise previous_not_found(previous)
        if turn.job:
            message = f"Previous response with id '{previous}' is still in progress."
            raise refuse(ProblemKind.INVALID, message, param="previous_response_id")
        turns.append(turn)
        if len(turns) > MAX_TURNS:
            message = f"The conversation has more than {MAX_TURNS} responses."
            raise refuse(ProblemKind.INVALID, message, param="previous_response_id")
        previous = turn.previous
    turns.reverse()
    return turns


async def _referenced(store: ResponseStore, owner: str, references: tuple[str, ...]) -> Mapping[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for response_id in {response_of_item(reference) for reference in references} - {None}:
        record = await store.get(owner, response_id or "")
        if record is not None and not record.job:
            found |= {item["id"]: item for item in (*input_items(record), *output_items(record))}
    return found
