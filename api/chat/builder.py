"""Assembling the choices of a whole response."""

from collections.abc import Iterable, Sequence

from api.chat.reader import ChoicePart, Ended, ResponseReader, TokenIds
from api.chat.selection import needs_logprobs, select
from api.chat.stream import ResponseStream
from api.chat.usage_recorder import UsageRecorder
from api.dialects.base.interface import Call, Choice, TokenLogprob
from api.parsers import CallArguments, CallClosed, CallOpened, Content, Part, Reasoning
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
        """Append parts."""
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
    """Assembles the parts of one choice."""

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
        """Append one part."""
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
        """Return the complete choice."""
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
