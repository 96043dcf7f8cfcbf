"""The dialect interface: parses request bodies, encodes responses and encodes errors.

A dialect does no I/O and does not depend on the web framework. Routes pass it bytes and send the bytes it returns.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from typing import Any, ClassVar, NamedTuple, Protocol

import msgspec

from api.dialects.base.models import render_model, render_models
from api.dialects.base.problems import ERROR_SCHEMA, ErrorReply, error_reply
from api.limits import Counts, LimitName
from api.limits.headers import openai_rate_headers
from shared.protocol.errors import Problem, RequestRefused
from shared.protocol.events import Embedded, FinishReason, PromptLogprobs, TopToken
from shared.protocol.registry import ModelInfo
from shared.protocol.request import ChatRequest

EVENT_STREAM = "text/event-stream"


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts of a request: its prompt counted once, and the completions of all its choices."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    """The part of ``completion_tokens`` that is reasoning."""


class TokenLogprob(msgspec.Struct, frozen=True, array_like=True):
    """A sampled token: its bytes, the natural logarithm of its probability, and the most likely tokens in its place."""

    piece: bytes
    logprob: float
    top: tuple[TopToken, ...] = ()


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call. ``arguments`` is JSON text, or the input of a custom tool; the length limit may have cut it."""

    id: str
    name: str
    arguments: str


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One complete choice. ``logprobs`` is None if the request did not ask for them."""

    index: int
    text: str
    reason: FinishReason
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    logprobs: tuple[TokenLogprob, ...] | None = None
    prompt: PromptLogprobs | None = None
    """The log probabilities of the prompt, if the request asks for them."""
    tokens: tuple[int, ...] = ()
    """The generated tokens."""
    prompt_tokens: tuple[int, ...] = ()
    """The prompt's tokens, if the request has ``return_token_ids``."""
    stop: str = ""
    """The stop string that matched, if one did."""


class MessagesMissing(RequestRefused):
    """The body names a model but has no messages.

    The OpenAI service checks the model before the messages. So a caller that knows the models should refuse an unknown
    model first, and report this error only for a known one.
    """

    def __init__(self, problem: Problem, *, model: str) -> None:
        super().__init__(problem)
        self.model = model


class Lookup(Protocol):
    """The query parameters or the headers of an HTTP request, by name."""

    def get(self, name: str, /) -> str | None:
        """Return the value of a parameter or header, or None. Header names are case-insensitive."""


class ServedModels(Protocol):
    """The models that workers serve now: by default, none."""

    def serving(self) -> Collection[str]:
        """Return their own names."""
        return ()

    def own_name(self, name: str) -> str:
        """Resolve an alias to the model's own name; return ``name`` itself if it is unknown."""
        return name


class NoModels(ServedModels):
    """No models."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a dialect may read of an HTTP request, other than its body."""

    path: str = ""
    headers: Lookup = {}
    query: Mapping[str, str] = {}
    id: str = ""
    """The id of the HTTP exchange."""
    at: float = 0.0
    """When it was received (monotonic seconds)."""
    deployment: str | None = None
    """The model of the request, whatever its body says: the one in the path of an Azure OpenAI client."""
    fleet: ServedModels = NoModels()


NOTHING = Asked()


class Models(NamedTuple):
    """The models that the client's key may use."""

    visible: Mapping[str, ModelInfo]
    """By name and by alias, in order."""
    loaded: Set[str]
    """The names and aliases of the models that a worker serves now."""
    find: Callable[[str], ModelInfo]
    """Returns the model with this name. Raises :class:`RequestRefused` if there is none."""


PING = b": keep-alive\n\n"
"""A comment, which clients of server-sent events ignore."""


class ResponseEncoder(Protocol):
    """Encodes the response to one accepted request.

    Order of a stream: for each choice one ``opening``, perhaps ``prompt``, any number of ``content``, ``reasoning``,
    ``call`` and ``arguments``, and one ``closing`` (choices may interleave); then ``usage`` once; then ``done``.
    Nothing follows ``failure``. Each method returns the bytes to send: one or more whole server-sent events, or
    nothing. Encoders inherit the methods for what their requests can't ask for.
    """

    done: bytes
    ping: bytes = PING
    """What a stream without output sends, at any time."""

    def opening(self, choice: int, prompt_tokens: int = 0, cached_tokens: int = 0) -> bytes:
        """Encode the first event of a choice, sent as soon as a worker has started the job.

        The prompt's tokens include those from the prefix cache.
        """
        return b""

    def prompt(self, choice: int, prompt: PromptLogprobs) -> bytes:
        """Encode the log probabilities of a choice's prompt that the request asks for."""
        return b""

    def token_ids(self, choice: int, tokens: Sequence[int], prompt: Sequence[int] = ()) -> bytes:
        """Encode new tokens of a choice, or those of its prompt, if the request has ``return_token_ids``."""
        return b""

    def content(self, choice: int, text: str, logprobs: Sequence[TokenLogprob] = ()) -> bytes:
        """Encode a text delta of a choice, with its tokens if the request asks for log probabilities."""

    def reasoning(self, choice: int, text: str, logprobs: Sequence[TokenLogprob] = ()) -> bytes:
        """Encode a reasoning delta of a choice, with its tokens if the request asks for log probabilities."""

    def call(self, choice: int, index: int, call_id: str, name: str) -> bytes:
        """Encode the start of a tool call; ``index`` numbers the calls of the choice from 0."""
        return b""

    def arguments(self, choice: int, index: int, text: str) -> bytes:
        """Encode a delta of the JSON text of a call's arguments, or of a custom tool's input."""
        return b""

    def closing(self, choice: int, reason: FinishReason, stop: str = "") -> bytes:
        """Encode the last event of a choice. ``stop`` is the stop string that matched, if one did."""

    def whole(self, choice: Choice) -> bytes:
        """Encode a complete choice as a stream, but for its opening."""
        pieces = [self.reasoning(choice.index, choice.reasoning)] if choice.reasoning else []
        if choice.text:
            pieces.append(self.content(choice.index, choice.text, choice.logprobs or ()))
        for index, call in enumerate(choice.calls):
            pieces.append(self.call(choice.index, index, call.id, call.name))
            pieces.append(self.arguments(choice.index, index, call.arguments))
        return b"".join((*pieces, self.closing(choice.index, choice.reason, choice.stop)))

    def count(self, usage: Usage) -> None:
        """Set the usage so far, which the next events contain if the request has ``continuous_usage``."""
        return

    def usage(self, usage: Usage) -> bytes:
        """Encode the usage event; empty if the request did not ask for it."""

    def failure(self, problem: Problem) -> bytes:
        """Encode an error that ends a started stream, including the stream's terminator."""

    def vectors(self, found: Sequence[Embedded], usage: Usage) -> bytes:
        """Encode the JSON body with the vectors of all jobs, in order."""
        return b""

    def completion(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        """Encode the JSON body of a response that is not streamed; ``choices`` are ordered by index."""


class Dialect(ABC):
    """One public HTTP API, instantiated for each request. What most dialects have in common is OpenAI's."""

    encoder: Callable[..., ResponseEncoder]
    """Called with what :meth:`render` gets."""
    roots: ClassVar[tuple[str, ...]] = ()
    """Paths below which all is this dialect's, so that its form reports a route that does not exist."""
    omits_model: ClassVar[bool] = False
    """Whether requests may omit their model, so that the served models must be known before a request is parsed."""
    untyped: ClassVar[bool] = False
    """Whether bodies are read whatever content type they declare. Web pages of other origins are then refused."""
    stream_type: ClassVar[str] = EVENT_STREAM
    """The content type of streams."""
    comments: ClassVar[bool] = True
    """Whether a stream may contain comments, such as queue events."""
    statuses: ClassVar[tuple[int, ...]] = (400, 401, 403, 404, 408, 413, 415, 429, 500, 503)
    """Statuses of errors of requests that workers serve, for the OpenAPI document."""
    error_schemas: ClassVar[Mapping[str, Mapping[str, Any]]] = {"Error": ERROR_SCHEMA}
    """JSON schemas of error bodies by their names in the OpenAPI document; each body is valid by one of them."""

    def __init__(self, asked: Asked = NOTHING) -> None:
        self.asked = asked

    @classmethod
    def of(cls, asked: Asked) -> "Dialect":
        """Return the dialect of a request on a route that names this class."""
        return cls(asked)

    @abstractmethod
    def parse(self, body: bytes) -> ChatRequest:
        """Parse a request body. Raises :class:`RequestRefused` and no other exception."""

    def render(self, request: ChatRequest, *, response_id: str, created: int, fingerprint: str) -> ResponseEncoder:
        """Return the encoder of the response to ``request``.

        ``response_id`` is a unique hexadecimal string that the dialect may prefix. ``created`` is a Unix time in
        seconds. ``fingerprint`` comes from the worker's ``Started`` event.
        """
        return self.encoder(request, response_id=response_id, created=created, fingerprint=fingerprint)

    def answer(self, request: ChatRequest, found: Sequence[Any]) -> bytes:
        """Encode the results of a request that generates nothing, on a route of :func:`results_route`: one for each
        job, in order."""
        return b""

    def error(self, problem: Problem) -> ErrorReply:
        """Encode an error that occurs before the response has started."""
        return error_reply(problem)

    def headers(self) -> Mapping[str, str]:
        """Return the headers that all responses of the dialect have."""
        return {}

    def rate_headers(self, counts: Mapping[LimitName, Counts]) -> Mapping[str, str]:
        """Return the headers with the state of the key's rate limits."""
        return openai_rate_headers(counts)

    def model(self, model: ModelInfo) -> bytes:
        """Encode a model as JSON."""
        return render_model(model)

    def models(self, models: Models, body: bytes) -> bytes:
        """List the served models. Raises :class:`RequestRefused`.

        Routes about models differ in what they encode here. ``body`` is that of the request, if it has one.
        """
        return render_models(models.visible.values())
