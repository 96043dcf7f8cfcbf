"""Parsing one choice: deltas become content, reasoning and tool calls, with their log probabilities."""

import codecs
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import cast

from api.chat.calls import CallFilter
from api.chat.selection import needs_logprobs
from api.chat.usage_recorder import UsageRecorder
from api.dialects.base.interface import Call, Choice, TokenLogprob
from api.parsers import CallArguments, CallClosed, CallOpened, Content, Parser, Part, Reasoning, parser_for
from shared.protocol.events import Delta, FinishReason, PromptLogprobs, Started
from shared.protocol.formats import GUIDED, OutputFormat, ReasoningFormatName, ToolFormatName
from shared.protocol.request import ChatRequest

_INCREMENTAL_UTF8 = codecs.getincrementaldecoder("utf-8")

ParsedPart = tuple[Part, Sequence[TokenLogprob]]


class ChoiceReader:
    """Parses the deltas of one choice. If ``plain``, all text is content and the reader can be skipped."""

    def __init__(self, request: ChatRequest, started: Started, recorder: UsageRecorder) -> None:
        """``started`` names the formats of the worker's text."""
        self._request = request
        self._started = started
        self._parser = _parser(request, started)
        self._aligner = _Aligner() if needs_logprobs(request) else None
        self._recorder = recorder
        self._calls = CallFilter(request.max_calls)
        self._reasoning = self._parser is not None and started.in_reasoning
        self._called = False
        self.plain = self._parser is None and self._aligner is None

    @property
    def complete(self) -> bool:
        """Whether the choice is complete although the model still generates; further deltas are ignored."""
        return self._calls.complete

    def renewed(self) -> "ChoiceReader":
        """Return a reader for another text of the same job."""
        return ChoiceReader(self._request, self._started, self._recorder)

    def read(self, delta: Delta) -> list[ParsedPart]:
        """Return the parts that ``delta`` adds."""
        if self.complete:
            return []
        if self._aligner:
            self._aligner.push(delta)
        if self._parser is None:
            parts: list[Part] = [Content(delta.text)] if delta.text else []
        else:
            parts = self._parser.feed(delta.text) if delta.text else []
            self._track(parts)
            if self._reasoning:
                self._recorder.reasoning_tokens += len(delta.tokens)
        return _with_logprobs(self._calls.filter(parts), self._aligner)

    def finish(self, reason: FinishReason) -> tuple[list[ParsedPart], FinishReason]:
        """Return the parts that were held back, and the finish reason for clients (``tool_calls`` after a call).

        After a cut by length, the remaining tokens are reported although they have no text yet, for example half of a
        character. Otherwise they belong to the end of the text or to calls, and are not reported.
        """
        parts = self._parser.finish(cut=reason == "length") if self._parser and not self.complete else []
        self._track(parts)
        in_markup = self._called or (self._parser is not None and self._parser.dropped)
        aligner = self._aligner if reason == "length" and not in_markup else None
        if aligner and aligner.flush() and not any(isinstance(part, Content | Reasoning) for part in parts):
            parts.append(Content(""))
        read = _with_logprobs(self._calls.filter(parts), aligner)
        if not self.complete:
            read += _with_logprobs(self._calls.rest(), None)
        if self._called and (reason == "stop" or self.complete):
            reason = "tool_calls"
        return read, reason

    def _track(self, parts: Sequence[Part]) -> None:
        for part in parts:
            match part:
                case Reasoning():
                    self._reasoning = True
                case CallOpened():
                    self._called = True
                    self._reasoning = False
                case Content():
                    self._reasoning = False


def _with_logprobs(parts: Iterable[Part], aligner: "_Aligner | None") -> list[ParsedPart]:
    """Attach the tokens that ``aligner`` has to the first part that can carry them."""
    read: list[ParsedPart] = []
    for part in parts:
        carries = isinstance(part, Content | Reasoning)
        read.append((part, aligner.take() if aligner is not None and carries else ()))
    return read


def _parser(request: ChatRequest, started: Started) -> Parser | None:
    """Return the parser for a choice's text; None when all of it is content.

    Plain completions are not parsed. Neither are chats with ``skip_special_tokens: false``, as in OpenVINO Model
    Server.
    """
    if request.prompts or not request.sampling.skip_special_tokens or not (started.tools or started.reasoning):
        return None
    guided = started.tools == GUIDED
    output = OutputFormat(
        tools=cast("ToolFormatName | None", None if guided else started.tools or None),
        reasoning=cast("ReasoningFormatName | None", started.reasoning or None),
    )
    callable_tools = request.tools if request.tool_choice != "none" else ()
    return parser_for(output, callable_tools, in_reasoning=started.in_reasoning, guided=guided)


class ChoiceBuilder:
    """Assembles the parts of one choice."""

    def __init__(self, index: int, *, logprobs: bool) -> None:
        self._index = index
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[tuple[str, str, list[str]]] = []
        self._logprobs: list[TokenLogprob] | None = [] if logprobs else None
        self.prompt: PromptLogprobs | None = None
        self.tokens: list[int] = []
        self.prompt_tokens: tuple[int, ...] = ()

    def add(self, part: Part, logprobs: Sequence[TokenLogprob]) -> None:
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
            case CallClosed():
                pass

    def add_text(self, text: str) -> None:
        """Append content without a parser or log probabilities: the common case, once per token."""
        self._text.append(text)

    def choice(self, reason: FinishReason, stop: str = "") -> Choice:
        """Return the complete choice, which ``reason`` or the stop string ``stop`` has ended."""
        return Choice(
            index=self._index,
            text="".join(self._text),
            reason=reason,
            reasoning="".join(self._reasoning),
            calls=tuple(
                Call(id=call_id, name=name, arguments="".join(arguments)) for call_id, name, arguments in self._calls
            ),
            logprobs=None if self._logprobs is None else tuple(self._logprobs),
            prompt=self.prompt,
            tokens=tuple(self.tokens),
            prompt_tokens=self.prompt_tokens,
            stop=stop,
        )


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
        """Return and remove the tokens that are ready."""
        ready, self._ready = self._ready, []
        return ready

    def flush(self) -> bool:
        """Make all tokens ready; return whether there are any."""
        self._ready += self._waiting
        self._waiting.clear()
        return bool(self._ready)
