"""Encoding a response in a dialect, as a stream or as one document."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence

from api.chat.reader import ChoiceBuilder, ChoiceReader, ParsedPart
from api.chat.selection import is_selected, jobs_per_prompt, needs_logprobs, select
from api.chat.stream import ResponseStream
from api.chat.usage_recorder import UsageRecorder
from api.dialects.base.interface import Choice, ResponseEncoder
from api.parsers import CallArguments, CallClosed, CallOpened, Content, Reasoning
from shared.protocol.errors import RequestRefused
from shared.protocol.events import (
    Alternatives,
    Delta,
    Event,
    Failed,
    Finished,
    PromptLogprobs,
    Rejected,
    Started,
)
from shared.protocol.request import ChatRequest

OnComplete = Callable[[list[Choice]], Awaitable[None]]


async def stream(
    response: ResponseStream,
    request: ChatRequest,
    encoder: ResponseEncoder,
    recorder: UsageRecorder,
    on_complete: OnComplete | None = None,
    write: Callable[[bytes], bool] | None = None,
    *,
    kept: bool = False,
) -> AsyncGenerator[bytes, None]:
    """Yield the encoded stream, one piece per batch of events.

    A failure after the first event is encoded into the stream. ``on_complete`` receives the complete choices in order,
    and is awaited before the end of the stream is sent. ``write`` sends a piece immediately or returns False; plain
    text is sent through it whenever nothing else is waiting to be sent. ``kept`` is whether the encoder keeps the whole
    answer.
    """
    if is_selected(request):
        async for piece in _stream_selected(response, request, encoder, recorder, on_complete):
            yield piece
        return
    readers: dict[int, ChoiceReader] = {}
    builders = [
        ChoiceBuilder(index, logprobs=request.sampling.logprobs)
        for index in range(len(response.jobs) if on_complete else 0)
    ]
    completed: list[Choice] = []
    unfinished = len(response.jobs)
    bypass = None
    if write is not None and on_complete is None and not request.return_token_ids:
        bypass = _bypass(readers, encoder, recorder, write)
    async for batch in response.batches(bypass):
        pieces: list[bytes] = []
        for choice, arrived in batch:
            event = _kept(recorder, arrived) if kept or on_complete is not None else arrived
            match event:
                case Delta():
                    recorder.delta(event)
                    reader = readers[choice]
                    if request.return_token_ids:
                        pieces.append(encoder.token_ids(choice, event.tokens))
                        if on_complete is not None:
                            builders[choice].tokens += event.tokens
                    if reader.plain and on_complete is None:
                        if event.text:
                            pieces.append(encoder.content(choice, event.text))
                    else:
                        read = reader.read(event)
                        write_parts(encoder, choice, read, pieces)
                        if on_complete is not None:
                            _build(builders[choice], read)
                        if reader.complete:
                            response.end(choice)
                case Started():
                    recorder.started(choice // jobs_per_prompt(request), event)
                    readers[choice] = ChoiceReader(request, event, recorder)
                    pieces.append(encoder.opening(choice, event.prompt_tokens, event.cached_tokens))
                    if request.return_token_ids:
                        pieces.append(encoder.token_ids(choice, (), event.prompt_token_ids))
                        if on_complete is not None:
                            builders[choice].prompt_tokens = event.prompt_token_ids
                case PromptLogprobs():
                    pieces.append(encoder.prompt(choice, event))
                case Finished():
                    recorder.finished(choice // jobs_per_prompt(request), event)
                    rest, reason = readers[choice].finish(event.reason)
                    write_parts(encoder, choice, rest, pieces)
                    recorder.outcome = reason
                    pieces.append(encoder.closing(choice, reason, event.stop))
                    unfinished -= 1
                    if on_complete is not None:
                        _build(builders[choice], rest)
                        completed.append(builders[choice].choice(reason, event.stop))
                case Failed() | Rejected():
                    recorder.outcome = event.problem.kind
                    pieces.append(encoder.failure(event.problem))
                    yield b"".join(pieces)
                    return
        if not unfinished:
            pieces += (encoder.usage(recorder.usage()), encoder.done)
            if on_complete is not None:
                await on_complete(sorted(completed, key=lambda choice: choice.index))
        if pieces:
            yield b"".join(pieces)


def _bypass(
    readers: dict[int, ChoiceReader], encoder: ResponseEncoder, recorder: UsageRecorder, write: Callable[[bytes], bool]
) -> Callable[[int, Event], bool]:
    """Return the function that sends plain text immediately: the hot path, run once per token."""

    def send(choice: int, event: Event) -> bool:
        if type(event) is not Delta:
            return False
        reader = readers.get(choice)
        if reader is None or not reader.plain or (event.text and not write(encoder.content(choice, event.text))):
            return False
        recorder.delta(event)
        return True

    return send


async def collect(response: ResponseStream, request: ChatRequest, recorder: UsageRecorder) -> list[Choice]:
    """Wait for all choices and return them. Raises :class:`RequestRefused` when any of them fails."""
    readers: dict[int, ChoiceReader] = {}
    logprobs = needs_logprobs(request)
    builders = [ChoiceBuilder(index, logprobs=logprobs) for index in range(len(response.jobs))]
    choices: dict[int, Choice] = {}
    async for batch in response.batches():
        for job, arrived in batch:
            event = _kept(recorder, arrived)
            match event:
                case Delta():
                    recorder.delta(event)
                    reader = readers[job]
                    if request.return_token_ids:
                        builders[job].tokens += event.tokens
                    if reader.plain:
                        builders[job].add_text(event.text)
                    else:
                        _build(builders[job], reader.read(event))
                        if reader.complete:
                            response.end(job)
                case Started():
                    recorder.started(job // jobs_per_prompt(request), event)
                    readers[job] = ChoiceReader(request, event, recorder)
                    builders[job].prompt_tokens = event.prompt_token_ids
                case PromptLogprobs():
                    builders[job].prompt = event
                case Finished():
                    recorder.finished(job // jobs_per_prompt(request), event)
                    rest, recorder.outcome = readers[job].finish(event.reason)
                    _build(builders[job], rest)
                    choices[job] = builders[job].choice(recorder.outcome, event.stop)
                case Alternatives():
                    recorder.finished(job // jobs_per_prompt(request), event)
                    for rank, item in enumerate(event.items):
                        recorder.generated(len(item.tokens))
                        builder = ChoiceBuilder(job * request.n + rank, logprobs=logprobs)
                        builder.tokens, builder.prompt_tokens = [*item.tokens], builders[job].prompt_tokens
                        reader = readers[job].renewed()
                        _build(builder, reader.read(Delta(0, item.tokens, item.text, item.logprobs, item.pieces)))
                        rest, recorder.outcome = reader.finish(item.reason)
                        _build(builder, rest)
                        choices[job * request.n + rank] = builder.choice(recorder.outcome)
                case Failed() | Rejected():
                    recorder.outcome = event.problem.kind
                    raise RequestRefused(event.problem)
    return select(request, [choices[index] for index in sorted(choices)])


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
    pieces: list[bytes] = []
    for choice in choices:
        if choice.reasoning:
            pieces.append(encoder.reasoning(choice.index, choice.reasoning))
        if choice.text:
            pieces.append(encoder.content(choice.index, choice.text, choice.logprobs or ()))
        for index, call in enumerate(choice.calls):
            pieces.append(encoder.call(choice.index, index, call.id, call.name))
            pieces.append(encoder.arguments(choice.index, index, call.arguments))
        pieces.append(encoder.closing(choice.index, choice.reason, choice.stop))
    if on_complete is not None:
        await on_complete(choices)
    yield b"".join((*pieces, encoder.usage(recorder.usage()), encoder.done))


def _kept(recorder: UsageRecorder, event: Event) -> Event:
    """Count the log probabilities of an event that is kept; return the failure of the request if there is no room."""
    match event:
        case Delta(logprobs=logprobs, top=top) | PromptLogprobs(rest=logprobs, top=top) if logprobs:
            size = len(logprobs) + sum(map(len, top))
        case Alternatives(items):
            size = sum(len(item.logprobs) for item in items)
        case _:
            return event
    try:
        recorder.keep(size)
    except RequestRefused as refusal:
        return Failed(refusal.problem)
    return event


def write_parts(encoder: ResponseEncoder, choice: int, read: list[ParsedPart], pieces: list[bytes]) -> None:
    """Append the encoded parts of a choice to ``pieces``."""
    for part, logprobs in read:
        match part:
            case Content(text):
                pieces.append(encoder.content(choice, text, logprobs))
            case Reasoning(text):
                pieces.append(encoder.reasoning(choice, text, logprobs))
            case CallOpened(index, call_id, name):
                pieces.append(encoder.call(choice, index, call_id, name))
            case CallArguments(index, text):
                pieces.append(encoder.arguments(choice, index, text))
            case CallClosed():
                pass


def _build(builder: ChoiceBuilder, read: Sequence[ParsedPart]) -> None:
    for part, logprobs in read:
        builder.add(part, logprobs)
