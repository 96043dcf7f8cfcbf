"""Encoding the parts of a response in a dialect, as a whole or as a stream."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence

from api.chat.choices import is_selected, needs_logprobs, select
from api.chat.reader import ChoicePart, Ended, ResponseReader, TokenIds
from api.chat.stream import ResponseStream
from api.chat.usage import UsageRecorder
from api.dialects.base.interface import Call, Choice, ResponseEncoder, TokenLogprob
from shared.parsers import CallArguments, CallClosed, CallOpened, Content, Part, Reasoning
from shared.protocol.errors import RequestRefused
from shared.protocol.events import FinishReason, PromptLogprobs, Started
from shared.protocol.request import ChatRequest


async def collect(response: ResponseStream, request: ChatRequest, recorder: UsageRecorder) -> list[Choice]:
    """Wait for all choices and return them. Raises :class:`RequestRefused` when any of them fails."""
    reader = ResponseReader(request, recorder, jobs=len(response.jobs), end=response.end, kept=True)
    builder = Builder(request)
    async for batch in response.batches():
        for job, event in batch:
            builder.add(reader.feed(job, event))
    return builder.choices()


class Builder:
    """Assembles the parts of a response."""

    def __init__(self, request: ChatRequest) -> None:
        self._request = request
        self._builders: dict[int, _ChoiceBuilder] = {}
        self._choices: dict[int, Choice] = {}

    def add(self, parts: Iterable[ChoicePart]) -> None:
        for choice, part, logprobs in parts:
            match part:
                case Started():
                    self._builders[choice] = _ChoiceBuilder(choice, part, logprobs=needs_logprobs(self._request))
                case Ended(reason, stop):
                    self._choices[choice] = self._builders[choice].choice(reason, stop)
                case _:
                    self._builders[choice].add(part, logprobs)

    def choices(self) -> list[Choice]:
        """Return the choices that have ended, in order; of a request with ``best_of``, the likeliest ones."""
        return select(self._request, [self._choices[index] for index in sorted(self._choices)])


class _ChoiceBuilder:
    def __init__(self, index: int, started: Started, *, logprobs: bool) -> None:
        self._index = index
        self._prompt_tokens = started.prompt_token_ids
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[tuple[str, str, list[str]]] = []
        self._logprobs: list[TokenLogprob] | None = [] if logprobs else None
        self._prompt: PromptLogprobs | None = None
        self._tokens: list[int] = []

    def add(self, part: Part | PromptLogprobs | TokenIds, logprobs: Sequence[TokenLogprob]) -> None:
        if self._logprobs is not None:
            self._logprobs += logprobs
        match part:
            case Content(text):
                self._text.append(text)
            case Reasoning(text):
                self._reasoning.append(text)
            case CallOpened(_, call_id, name):
                self._calls.append((call_id, name, []))
            case CallArguments(index, text):
                self._calls[index][2].append(text)
            case TokenIds(tokens):
                self._tokens += tokens
            case PromptLogprobs():
                self._prompt = part
            case CallClosed():
                pass

    def choice(self, reason: FinishReason, stop: str) -> Choice:
        return Choice(
            index=self._index,
            text="".join(self._text),
            reason=reason,
            reasoning="".join(self._reasoning),
            calls=tuple(
                Call(id=call_id, name=name, arguments="".join(arguments)) for call_id, name, arguments in self._calls
            ),
            logprobs=None if self._logprobs is None else tuple(self._logprobs),
            prompt=self._prompt,
            tokens=tuple(self._tokens),
            prompt_tokens=self._prompt_tokens,
            stop=stop,
        )


OnComplete = Callable[[list[Choice]], Awaitable[None]]


async def stream(
    response: ResponseStream,
    request: ChatRequest,
    encoder: ResponseEncoder,
    recorder: UsageRecorder,
    on_complete: OnComplete | None = None,
    *,
    kept: bool = False,
) -> AsyncGenerator[bytes, None]:
    """Yield the encoded stream, one piece per batch of events.

    A failure after the first event is encoded into the stream. ``on_complete`` receives the complete choices in order,
    and is awaited before the end of the stream is sent. ``kept`` is whether the encoder keeps the whole response.
    """
    if is_selected(request):
        async for piece in _stream_selected(response, request, encoder, recorder, on_complete):
            yield piece
        return
    builder = Builder(request) if on_complete is not None else None
    reader = ResponseReader(
        request, recorder, jobs=len(response.jobs), end=response.end, kept=kept or builder is not None
    )
    async for batch in response.batches():
        pieces: list[bytes] = []
        ended = reader.finished
        for job, event in batch:
            try:
                parts = reader.feed(job, event)
            except RequestRefused as refusal:
                yield b"".join((*pieces, encoder.failure(refusal.problem)))
                return
            if request.response.continuous_usage:
                encoder.count(recorder.usage())
            pieces += encoded(encoder, parts)
            if builder is not None:
                builder.add(parts)
        if reader.finished and not ended:
            pieces += (encoder.usage(recorder.usage()), encoder.done)
            if builder is not None and on_complete is not None:
                await on_complete(builder.choices())
        # An encoder may return nothing.
        if piece := b"".join(pieces):
            yield piece


async def _stream_selected(
    response: ResponseStream,
    request: ChatRequest,
    encoder: ResponseEncoder,
    recorder: UsageRecorder,
    on_complete: OnComplete | None,
) -> AsyncIterator[bytes]:
    """Stream a response whose choices are known only at the end."""
    yield b"".join(encoder.opening(choice) for choice in range(request.n * max(1, len(request.prompts))))
    try:
        choices = await collect(response, request, recorder)
    except RequestRefused as refusal:
        yield encoder.failure(refusal.problem)
        return
    if request.response.continuous_usage:
        encoder.count(recorder.usage())
    pieces = [encoder.whole(choice) for choice in choices]
    if on_complete is not None:
        await on_complete(choices)
    yield b"".join((*pieces, encoder.usage(recorder.usage()), encoder.done))


def encoded(encoder: ResponseEncoder, parts: Iterable[ChoicePart]) -> list[bytes]:
    pieces: list[bytes] = []
    for choice, part, logprobs in parts:
        match part:
            case Content(text):
                pieces.append(encoder.content(choice, text, logprobs))
            case Reasoning(text):
                pieces.append(encoder.reasoning(choice, text, logprobs))
            case CallOpened(index, call_id, name):
                pieces.append(encoder.call(choice, index, call_id, name))
            case CallArguments(index, text):
                pieces.append(encoder.arguments(choice, index, text))
            case TokenIds(tokens):
                pieces.append(encoder.token_ids(choice, tokens))
            case Started():
                pieces.append(encoder.opening(choice, part.prompt_tokens, part.cached_tokens))
                if part.prompt_token_ids:
                    pieces.append(encoder.token_ids(choice, (), part.prompt_token_ids))
            case PromptLogprobs():
                pieces.append(encoder.prompt(choice, part))
            case Ended(reason, stop):
                pieces.append(encoder.closing(choice, reason, stop))
            case CallClosed():
                pass
    return pieces
