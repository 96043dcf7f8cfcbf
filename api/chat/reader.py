"""Reading a response: events become parts, such as content, reasoning and tool calls with their log probabilities."""

import codecs
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat

import msgspec

from api.chat.calls import CallFilter
from api.chat.choices import jobs_per_prompt, needs_logprobs
from api.chat.custom_inputs import CustomInputs
from api.chat.usage import UsageRecorder
from api.dialects.base.interface import TokenLogprob
from shared.parsers import CallClosed, CallOpened, Content, Part, Reasoning, markup_of
from shared.protocol.errors import RequestRefused
from shared.protocol.events import (
    Alternatives,
    Delta,
    Event,
    Failed,
    Finished,
    FinishReason,
    PromptLogprobs,
    Rejected,
    Started,
)
from shared.protocol.request import ChatRequest

_INCREMENTAL_UTF8 = codecs.getincrementaldecoder("utf-8")


class TokenIds(msgspec.Struct, frozen=True):
    """Generated tokens, if the request has ``return_token_ids``."""

    tokens: tuple[int, ...]


class Ended(msgspec.Struct, frozen=True):
    """The end of a choice, by ``reason`` or the stop string ``stop``."""

    reason: FinishReason
    stop: str = ""


ParsedPart = tuple[Part, Sequence[TokenLogprob]]
ChoicePart = tuple[int, Part | Started | PromptLogprobs | TokenIds | Ended, Sequence[TokenLogprob]]
"""The index of a choice, one of its parts, and the tokens of a text if the request asks for log probabilities.

The first part of a choice is the job's :class:`Started` event, the last one is :class:`Ended`.
"""


class ResponseReader:
    """Reads the events of all jobs of a response. Records its usage, and ends choices that are complete."""

    def __init__(
        self,
        request: ChatRequest,
        recorder: UsageRecorder,
        *,
        jobs: int = 1,
        end: Callable[[int], object] | None = None,
        kept: bool = False,
    ) -> None:
        """``end`` is called with the index of a job whose choice is complete although the model still generates.

        ``kept`` is whether the whole response is kept in memory, so that its log probabilities need room.
        """
        self._request = request
        self._recorder = recorder
        self._end = end
        self._kept = kept
        self._open = set(range(jobs))
        self._started: dict[int, Started] = {}
        self.choices: dict[int, ChoiceReader] = {}
        """The readers of the jobs that have started."""

    @property
    def finished(self) -> bool:
        """Whether every job has ended, or its choice is complete."""
        return not self._open

    def feed(self, job: int, event: Event) -> list[ChoicePart]:
        """Return the parts that the event of a job adds. What follows the end of a choice is ignored.

        Raises :class:`RequestRefused` if the response has failed, or if there is no room for its log probabilities.
        """
        try:
            return self._read(job, event) if job in self._open else []
        except RequestRefused as refusal:
            self._recorder.outcome = refusal.problem.kind
            raise

    def _read(self, job: int, event: Event) -> list[ChoicePart]:
        if self._kept:
            self._recorder.keep(_logprobs_in(event))
        match event:
            case Delta():
                self._recorder.delta(event)
                reader = self.choices[job]
                parts = self._text(job, reader, event)
                if reader.complete:
                    self._open.remove(job)
                    parts += self._ended(job, reader, "stop")
                    if self._end is not None:
                        self._end(job)
                return parts
            case Started():
                self._recorder.started(job // jobs_per_prompt(self._request), event)
                self._started[job] = event
                self.choices[job] = ChoiceReader(self._request, event, self._recorder)
                return [(job, event, ())]
            case PromptLogprobs():
                return [(job, event, ())]
            case Finished():
                self._open.remove(job)
                self._recorder.finished(job // jobs_per_prompt(self._request), event)
                return self._ended(job, self.choices[job], event.reason, event.stop)
            case Alternatives():
                self._open.remove(job)
                self._recorder.finished(job // jobs_per_prompt(self._request), event)
                return self._alternatives(job, event)
            case Failed() | Rejected():
                raise RequestRefused(event.problem)
        return []

    def _alternatives(self, job: int, event: Alternatives) -> list[ChoicePart]:
        """Return the parts of the choices of a beam search, which is one job."""
        parts: list[ChoicePart] = []
        for choice, item in enumerate(event.items, job * self._request.n):
            self._recorder.generated(len(item.tokens))
            reader = ChoiceReader(self._request, self._started[job], self._recorder)
            parts.append((choice, self._started[job], ()))
            parts += self._text(choice, reader, Delta(0, item.tokens, item.text, item.logprobs, item.pieces))
            parts += self._ended(choice, reader, item.reason)
        return parts

    def _text(self, choice: int, reader: "ChoiceReader", delta: Delta) -> list[ChoicePart]:
        parts: list[ChoicePart] = [(choice, part, logprobs) for part, logprobs in reader.read(delta)]
        return [(choice, TokenIds(delta.tokens), ()), *parts] if self._request.return_token_ids else parts

    def _ended(self, choice: int, reader: "ChoiceReader", reason: FinishReason, stop: str = "") -> list[ChoicePart]:
        rest, reason = reader.finish(reason)
        self._recorder.outcome = reason
        return [*((choice, part, logprobs) for part, logprobs in rest), (choice, Ended(reason, stop), ())]


def _logprobs_in(event: Event) -> int:
    match event:
        case Delta(logprobs=logprobs, top=top) | PromptLogprobs(rest=logprobs, top=top) if logprobs:
            return len(logprobs) + sum(map(len, top))
        case Alternatives(items):
            return sum(len(item.logprobs) for item in items)
    return 0


class ChoiceReader:
    """Parses the deltas of one choice. If ``plain``, all text is content and the reader can be skipped."""

    def __init__(self, request: ChatRequest, started: Started, recorder: UsageRecorder) -> None:
        """``started`` names the formats of the worker's text."""
        markup = markup_of(request, started)
        self._parser = markup.parser() if markup is not None else None
        self._aligner = _Aligner() if needs_logprobs(request) else None
        self._recorder = recorder
        self._calls: CallFilter | None = None
        if self._parser is not None:
            self._calls = CallFilter(request.max_calls)
            self._inputs = CustomInputs({tool.name for tool in request.tools if tool.custom is not None})
        self._opened = self._closed = 0
        """Numbers of calls among the parts, and of those that are complete."""
        self._plain = self._parser is None and self._aligner is None

    @property
    def complete(self) -> bool:
        """Whether the choice is complete although the model still generates; further deltas are ignored."""
        return self._calls is not None and self._calls.complete

    def read(self, delta: Delta) -> list[ParsedPart]:
        if self._plain:
            return [(Content(delta.text), ())] if delta.text else []
        if self.complete:
            return []
        if self._aligner:
            self._aligner.push(delta)
        if self._parser is None or self._calls is None:
            return _with_logprobs([Content(delta.text)] if delta.text else [], self._aligner)
        parts = self._parser.feed(delta.text) if delta.text else []
        if self._parser.in_reasoning:
            self._recorder.reasoning_tokens += len(delta.tokens)
        return _with_logprobs(self._counted(self._calls.filter(parts)), self._aligner)

    def finish(self, reason: FinishReason) -> tuple[list[ParsedPart], FinishReason]:
        """Return the parts that were held back, and the finish reason for clients.

        It is ``tool_calls`` after calls that are all complete, and ``cut`` after one that is not. After a cut by
        length, the remaining tokens are reported although they have no text yet, for example half of a character.
        Otherwise they belong to the end of the text or to calls, and are not reported.
        """
        parts = self._parser.finish(cut=reason == "length") if self._parser and not self.complete else []
        in_markup = self._opened or (self._parser is not None and self._parser.dropped)
        aligner = self._aligner if reason == "length" and not in_markup else None
        if aligner and aligner.flush() and not any(isinstance(part, Content | Reasoning) for part in parts):
            parts.append(Content(""))
        if self._parser is None or self._calls is None:
            return _with_logprobs(parts, aligner), reason
        read = _with_logprobs(self._counted(self._calls.filter(parts)), aligner)
        if not self.complete:
            read += _with_logprobs(self._counted(self._calls.rest()), None)
        if reason == "stop" or self.complete:
            if self._closed < self._opened or self._parser.incomplete:
                reason = "cut"
            elif self._opened:
                reason = "tool_calls"
        return read, reason

    def _counted(self, parts: Iterable[Part]) -> Iterable[Part]:
        """Count calls, and decode the inputs of custom tools."""
        for part in self._inputs.decode(parts):
            self._opened += isinstance(part, CallOpened)
            self._closed += isinstance(part, CallClosed)
            yield part


def _with_logprobs(parts: Iterable[Part], aligner: "_Aligner | None") -> list[ParsedPart]:
    """Attach the tokens that ``aligner`` has to the first part that can carry them."""
    read: list[ParsedPart] = []
    for part in parts:
        carries = isinstance(part, Content | Reasoning)
        read.append((part, aligner.take() if aligner is not None and carries else ()))
    return read


class _Aligner:
    """Holds back tokens until text that they are part of is emitted.

    Text is held back for incomplete characters and possible stop strings, and cut where a stop string matched. Tokens
    whose text is never emitted are not reported. In the text, invalid UTF-8 is replaced or dropped, and so may be a
    space at the start; tokens have the bytes that the model generated.
    """

    def __init__(self) -> None:
        self._decoder = _INCREMENTAL_UTF8("replace")
        self._waiting: deque[TokenLogprob] = deque()
        self._ready: list[TokenLogprob] = []
        """Tokens whose text has arrived, but which no part has carried: a parser may still hold their text."""
        self._text = ""
        self._at = 0
        """Where in the text the next token begins."""
        self._owed = ""
        """What the ready tokens say beyond the text that has arrived."""

    def push(self, delta: Delta) -> None:
        """Add tokens; those that begin before the end of the text so far are ready."""
        self._waiting.extend(map(TokenLogprob, delta.pieces, delta.logprobs, delta.top or repeat(())))
        self._text, self._at = self._text[self._at :] + delta.text, 0
        self._advance(self._owed)
        while self._waiting and self._at < len(self._text):
            token = self._waiting.popleft()
            self._advance(self._decoder.decode(token.piece))
            self._ready.append(token)

    def _advance(self, said: str) -> None:
        """Move behind ``said``. Characters of it that are not in the text were dropped."""
        if self._text.startswith(said, self._at):
            self._at += len(said)
            self._owed = ""
            return
        for index, character in enumerate(said):
            if self._at == len(self._text):
                self._owed = said[index:]
                return
            self._at += self._text[self._at] == character
        self._owed = ""

    def take(self) -> list[TokenLogprob]:
        ready, self._ready = self._ready, []
        return ready

    def flush(self) -> bool:
        """Make all tokens ready; return whether there are any."""
        self._ready += self._waiting
        self._waiting.clear()
        return bool(self._ready)
