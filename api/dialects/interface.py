"""What a dialect is: one request type in, one event stream out, three translators around them.

A dialect does no I/O and knows no web framework. The routes hand it bytes and send on the bytes that it returns.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from shared.protocol.errors import Problem, RequestRefused
from shared.protocol.events import FinishReason
from shared.protocol.request import ChatRequest


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of a whole request: its prompt once, the completions of all its choices together."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    """Those of the completion tokens that were reasoning."""


class TokenLogprob(msgspec.Struct, frozen=True, array_like=True):
    """A token that was chosen: its bytes, and the natural logarithm of its probability."""

    piece: bytes
    logprob: float


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call that the model made. ``arguments`` is JSON text, perhaps cut off at the length limit."""

    id: str
    name: str
    arguments: str


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One complete answer. ``logprobs`` is None where none were asked for."""

    index: int
    text: str
    reason: FinishReason
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    logprobs: tuple[TokenLogprob, ...] | None = None


class ErrorReply(msgspec.Struct, frozen=True, kw_only=True):
    """A whole HTTP answer. ``body`` is JSON; ``headers`` come on top of the usual ones."""

    status: int
    body: bytes
    headers: Mapping[str, str] = {}


class MessagesMissing(RequestRefused):
    """The body has no messages, but names a model.

    The OpenAI service looks for the model before it asks for messages. So whoever knows the models should refuse an
    unknown one instead of raising this.
    """

    def __init__(self, problem: Problem, *, model: str) -> None:
        super().__init__(problem)
        self.model = model


class Lookup(Protocol):
    """The query parameters or the headers of a request, by name."""

    def get(self, name: str, /) -> str | None:
        """The value of one, if it is there; headers are found in any case."""


class ResponseEncoder(Protocol):
    """The answer to one accepted request, in the dialect's form.

    A stream is, for each choice, one ``opening``, any number of ``content``, ``reasoning``, ``call`` and
    ``arguments``, and one ``closing`` (choices may interleave), then ``usage`` once, then ``done``. After
    ``failure`` nothing else is sent. Each method returns the bytes to send as they are: one or more whole
    server-sent events, or nothing at all.
    """

    done: bytes

    def opening(self, choice: int) -> bytes:
        """The first event of a choice, sent as soon as the worker has accepted the request."""

    def content(self, choice: int, text: str, logprobs: Sequence[TokenLogprob] = ()) -> bytes:
        """More text of a choice, with the tokens that it was made of where log probabilities were asked for."""

    def reasoning(self, choice: int, text: str, logprobs: Sequence[TokenLogprob] = ()) -> bytes:
        """More of what the model writes to itself."""

    def call(self, choice: int, index: int, call_id: str, name: str) -> bytes:
        """The beginning of a tool call; ``index`` counts the choice's calls from 0."""

    def arguments(self, choice: int, index: int, text: str) -> bytes:
        """More of the JSON text of a call's arguments."""

    def closing(self, choice: int, reason: FinishReason) -> bytes:
        """The last event of a choice."""

    def usage(self, usage: Usage) -> bytes:
        """The usage event; empty when the request did not ask for it."""

    def failure(self, problem: Problem) -> bytes:
        """The end of a stream that broke after it began, its terminator included."""

    def completion(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        """The JSON body of an answer that does not stream; ``choices`` are in order of their index."""


class Dialect(Protocol):
    """One HTTP chat interface. Where request headers matter to it, an instance is made for each request."""

    def parse(self, body: bytes) -> ChatRequest:
        """Translate a request body. Raises :class:`RequestRefused`, and nothing else."""

    def render(self, request: ChatRequest, *, answer_id: str, created: int, fingerprint: str) -> ResponseEncoder:
        """Begin the answer to ``request``.

        ``answer_id`` is a unique hexadecimal string that the dialect may prefix, ``created`` is in Unix seconds,
        ``fingerprint`` comes from the worker's ``Started`` event.
        """

    def error(self, problem: Problem) -> ErrorReply:
        """Translate a failure that happens before the answer has begun."""
