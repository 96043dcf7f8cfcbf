"""The stored items that a request continues or refers to."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from api.dialects.base.body import MAX_VALUES, count_values
from api.dialects.responses.parse import StoredConversation, ValidatedRequest, previous_not_found
from api.dialects.responses.schema import ResponsesRequest
from api.http.bodies import BodyParser
from api.responses import documents
from api.responses.forms import input_items, output_items
from api.stored.record import StoredResponse, is_response_id, response_of_item
from api.stored.store import ResponseStore
from shared.protocol.errors import ProblemKind, RequestRefused, refuse

MAX_TURNS = 1024
"""Maximum number of responses in one conversation."""


async def stored_conversation(
    store: ResponseStore, parser: BodyParser, owner: str, valid: ValidatedRequest[ResponsesRequest], *, max_bytes: int
) -> StoredConversation:
    """Return the stored items that ``valid`` needs.

    The responses that they are part of have at most ``max_bytes`` of JSON together, and as many values in their input
    as a body. Raises :class:`RequestRefused` for larger ones, for an unknown previous response and when the store is
    unreachable.
    """
    size = _Size(max_bytes)
    turns = await _turns(store, owner, valid.previous, size)
    if turns:
        await store.keep(owner, [turn.id for turn in turns])
    referenced = await _referenced(store, owner, valid.references, size)
    return await parser.run(owner, size.bytes, lambda: _joined(turns, referenced, size.bytes))


def _joined(turns: Sequence[StoredResponse], referenced: Sequence[StoredResponse], size: int) -> StoredConversation:
    return StoredConversation(
        earlier=tuple(item for turn in turns for item in _items(turn)),
        referenced={item["id"]: item for record in referenced for item in _items(record)},
        size=size,
    )


def _items(record: StoredResponse) -> Iterator[Mapping[str, Any]]:
    yield from input_items(record)
    yield from output_items(record)


class _Size:
    """The size of the responses of a conversation, which a small request can make large."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.bytes = 0
        self._values = 0

    def add(self, record: StoredResponse, param: str) -> None:
        """Add a response. Raises :class:`RequestRefused`, naming ``param``, if the conversation is too large."""
        self.bytes += len(record.input) + len(record.document)
        if self.bytes > self._max_bytes:
            raise _too_large(f"{self._max_bytes} bytes", param)
        self._values += count_values(record.input)
        if self._values > MAX_VALUES:
            raise _too_large(f"{MAX_VALUES} values in their input", param)


async def _turns(store: ResponseStore, owner: str, previous: str | None, size: _Size) -> list[StoredResponse]:
    """Return the responses of a conversation, the first one first."""
    turns: list[StoredResponse] = []
    while previous:
        turn = await documents.find(store, owner, previous) if is_response_id(previous) else None
        if turn is None:
            raise previous_not_found(previous)
        if not turn.document:
            message = f"Previous response with id '{previous}' is still in progress."
            raise refuse(ProblemKind.INVALID, message, param="previous_response_id")
        turns.append(turn)
        if len(turns) > MAX_TURNS:
            message = f"The conversation has more than {MAX_TURNS} responses."
            raise refuse(ProblemKind.INVALID, message, param="previous_response_id")
        size.add(turn, "previous_response_id")
        previous = turn.previous
    turns.reverse()
    return turns


async def _referenced(
    store: ResponseStore, owner: str, references: tuple[str, ...], size: _Size
) -> list[StoredResponse]:
    """Return the responses that the items with the ids ``references`` are part of."""
    found: list[StoredResponse] = []
    for response_id in {response_of_item(reference) for reference in references} - {None}:
        record = await documents.find(store, owner, response_id or "")
        if record is not None and record.document:
            size.add(record, "input")
            found.append(record)
    return found


def _too_large(limit: str, param: str) -> RequestRefused:
    message = f"The stored responses that this request continues or refers to have more than {limit} together."
    return refuse(ProblemKind.INVALID, message, param=param)
