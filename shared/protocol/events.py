"""Events of a job, published by workers for API replicas, and the frames that carry them.

Order for one attempt at a generation: ``Started``, perhaps ``PromptLogprobs``, any number of ``Delta``, then
``Finished`` or ``Failed``; or ``Rejected`` alone. Jobs of other kinds have ``Started``, one :data:`Result` and
``Finished``. Positions count generated tokens from 0, so that receivers detect gaps and repeats.
Events are encoded as arrays without field names, because they are written and read once per token.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Literal

import msgspec

from shared.protocol.errors import Problem, ProblemKind

FinishReason = Literal["stop", "length", "tool_calls", "cut"]
"""``cut``: the text ended inside a tool call. Workers report ``stop`` and ``length``."""
TokenId = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
MoveCause = Literal["worker_lost", "worker_draining", "engine_lost", "preempted"]
"""Why a job went back to the queue: its lease expired, its worker drained, its engine process ended, or it has left its
slot to another."""


class Started(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The request was accepted by the engine. ``fingerprint`` identifies engine and model.

    ``tools`` and ``reasoning`` name the formats (:mod:`shared.parsers.formats`) of calls and reasoning in the text;
    empty if there are none. ``in_reasoning`` is set when the prompt itself opened the reasoning, so that the text
    starts inside it.
    """

    worker: str
    prompt_tokens: int
    fingerprint: str
    cached_tokens: int = 0
    tools: str = ""
    reasoning: str = ""
    in_reasoning: bool = False
    prompt_token_ids: tuple[int, ...] = ()
    """The prompt's tokens, if the request has ``return_token_ids``."""
    attempt: int = 0
    """Number of the attempt, from 1; 0 from a worker of an older version."""
    cause: str = ""
    """Why there is an attempt after the first (:data:`MoveCause`), or empty."""
    prompt_seconds: float = 0.0
    """Time from the claim until the engine got the sequence."""
    prefill_seconds: float = 0.0
    """Time from then until the engine's first output."""


class Rejected(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The request was rejected; no worker could serve it."""

    problem: Problem


class TopToken(msgspec.Struct, frozen=True, array_like=True):
    """One of the most likely tokens at a position: its bytes, and its log probability."""

    piece: bytes
    logprob: float


class Delta(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """New tokens: ``position`` is the index of the first one.

    ``text`` may be empty while characters or a possible stop string are held back, and may then
    belong to earlier tokens too. If log probabilities were requested, ``logprobs`` and ``pieces`` (each
    token's bytes) run parallel to ``tokens``, and so does ``top``, the most likely tokens at each position, likeliest
    first.
    """

    position: int
    tokens: tuple[TokenId, ...]
    text: str
    logprobs: tuple[float, ...] = ()
    pieces: tuple[bytes, ...] = ()
    top: tuple[tuple[TopToken, ...], ...] = ()


class Finished(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The job has finished. ``position`` is the number of generated tokens.

    ``prompt_tokens`` is the number with images, or 0: the number in :class:`Started` is right. ``stop`` is the stop
    string that has ended the text, if one has.
    """

    position: int
    reason: FinishReason
    prompt_tokens: int = 0
    stop: str = ""


class Failed(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """The job has failed; its text remains incomplete."""

    problem: Problem


class Alternative(msgspec.Struct, frozen=True, array_like=True):
    """One complete text of a beam search."""

    tokens: tuple[int, ...]
    text: str
    reason: FinishReason
    score: float
    logprobs: tuple[float, ...] = ()
    pieces: tuple[bytes, ...] = ()


class Alternatives(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """A beam search has finished: one text per choice of the request, best first.

    ``prompt_tokens`` is as in :class:`Finished`.
    """

    items: tuple[Alternative, ...]
    prompt_tokens: int = 0


class RankedToken(msgspec.Struct, frozen=True, array_like=True):
    """A token, its bytes, its log probability, and its rank among all tokens at its position, from 1."""

    token: int
    piece: bytes
    logprob: float
    rank: int


class PromptLogprobs(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """The log probabilities of the prompt. A job publishes them once, before its first delta.

    ``first`` is the first token and its bytes; it has no log probability. ``rest`` are the others. ``top`` runs
    parallel to ``rest``: the most likely tokens at each position, likeliest first.
    """

    first: tuple[int, bytes]
    rest: tuple[RankedToken, ...]
    top: tuple[tuple[RankedToken, ...], ...]


class Tokenized(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """The tokens of a prompt, with the ``strings`` of each or the ``text`` of all if requested.

    See :class:`~shared.protocol.request.Tokenize` for the description of a tokenizer.
    """

    tokens: tuple[int, ...]
    strings: tuple[str, ...]
    text: str
    context_length: int
    image_tokens: int = 0
    """The number of tokens of images, which are not in ``tokens``."""

    @property
    def count(self) -> int:
        return len(self.tokens) + self.image_tokens


class Embedded(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """The vectors of ``texts`` texts, one after the other, as little-endian floats of 32 bits. In no journal."""

    vectors: bytes
    texts: int


Result = Tokenized | Embedded
"""What a job of another kind of work than a generation publishes."""

Event = Started | Rejected | Delta | Finished | Failed | Alternatives | PromptLogprobs | Result
TERMINAL = (Finished, Failed, Rejected, Alternatives)

CANCELLED = Failed(Problem(kind=ProblemKind.CANCELLED, message="The request was cancelled."))
"""The terminal event of a cancelled job."""


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One event in a frame. ``attempt`` counts a job's claims from 1; stale ones are ignored."""

    job: str
    attempt: int
    event: Event


_encode = msgspec.msgpack.Encoder().encode
_event_decoder: msgspec.msgpack.Decoder[Event] = msgspec.msgpack.Decoder(Event)

encode_event: Callable[[Event], bytes] = _encode
"""Returns one event as MessagePack bytes, the form used in journals and frames."""

decode_frame = msgspec.msgpack.Decoder(list[Entry]).decode
"""Returns a frame's entries. Raises :class:`msgspec.DecodeError` when the bytes are not a frame."""


def entry_head(job: str, attempt: int) -> bytes:
    """Return the encoded head of an attempt's entries; followed by an encoded event, it is an :class:`Entry`."""
    return b"\x93" + _encode(job) + _encode(attempt)


def encode_frame(entries: Sequence[bytes]) -> bytes:
    """Return a frame as MessagePack bytes. ``entries`` alternates heads and encoded events."""
    count = len(entries) // 2
    # MessagePack: fixarray up to 15 items, array 32 beyond.
    size = bytes((0x90 | count,)) if count < 16 else b"\xdd" + count.to_bytes(4, "big")
    return b"".join((size, *entries))


class FrameOnly(bytes):
    """An encoded event that is too large for journals: who has missed its frame sends the request again."""


def decode_journal(items: Iterable[bytes]) -> list[Event]:
    """Return a job's journalled events in order. Raises :class:`msgspec.DecodeError` on malformed bytes."""
    return [_event_decoder.decode(item) for item in items]
