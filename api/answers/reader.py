"""Reading one choice: its deltas become content, reasoning and calls, with log probabilities beside them."""

import math
from collections import deque
from collections.abc import Sequence
from typing import cast

from api.answers.selection import needs_logprobs
from api.answers.usage_recorder import UsageRecorder
from api.dialects.interface import Call, Choice, TokenLogprob
from api.parsers import CallArguments, CallClosed, CallOpened, Content, Parser, Part, Reasoning, parser_for
from shared.protocol.events import Delta, FinishReason, Started
from shared.protocol.formats import OutputFormat, ReasoningFormatName, ToolFormatName
from shared.protocol.request import ChatRequest

GUIDED = "guided"
"""The tool format of a text that a grammar makes a JSON array of calls."""

Read = tuple[Part, Sequence[TokenLogprob]]


class ChoiceReader:
    """Reads the deltas of one choice. ``plain`` readers need not be asked: all of the text is content."""

    def __init__(self, request: ChatRequest, started: Started, tally: UsageRecorder) -> None:
        """``started`` tells in which formats the worker's text is."""
        self._request = request
        self._started = started
        self._parser = _parser(request, started)
        self._aligner = _Aligner() if needs_logprobs(request) else None
        self._tally = tally
        self._most_calls = 1 if request.single_call else math.inf
        self._reasoning = self._parser is not None and started.in_reasoning
        self._called = False
        self.plain = self._parser is None and self._aligner is None
        self.complete = False
        """Whether the answer has all that it may have, though the model goes on; nothing is read from then on."""

    def anew(self) -> "ChoiceReader":
        """A reader for another text of the same job."""
        return ChoiceReader(self._request, self._started, self._tally)

    def read(self, delta: Delta) -> list[Read]:
        """Return what is new."""
        if self.complete:
            return []
        logprobs = self._aligner.take(delta) if self._aligner else ()
        if self._parser is None:
            parts: list[Part] = [Content(delta.text)] if delta.text else []
        else:
            parts = self._parser.feed(delta.text) if delta.text else []
            self._watch(parts)
            if self._reasoning:
                self._tally.reasoning_tokens += len(delta.tokens)
        return self._with(parts, logprobs)

    def finish(self, reason: FinishReason) -> tuple[list[Read], FinishReason]:
        """Return what was held back, and the reason as clients know it: a call that was made is one.

        Tokens that are left are part of an answer that was cut off by length, although they show no text (half a
        character, say). Otherwise they ended the answer or made calls, and are told no more than their text.
        """
        parts = self._parser.finish(cut=reason == "length") if self._parser and not self.complete else []
        self._watch(parts)
        in_markup = self._called or (self._parser is not None and self._parser.dropped)
        logprobs = self._aligner.rest() if self._aligner and reason == "length" and not in_markup else ()
        if logprobs and not any(isinstance(part, Content | Reasoning) for part in parts):
            parts.append(Content(""))
        if self._called and (reason == "stop" or self.complete):
            reason = "tool_calls"
        return self._with(parts, logprobs), reason

    def _watch(self, parts: Sequence[Part]) -> None:
        for part in parts:
            match part:
                case Reasoning():
                    self._reasoning = True
                case CallOpened():
                    self._called = True
                    self._reasoning = False
                case Content():
                    self._reasoning = False

    def _with(self, parts: Sequence[Part], logprobs: Sequence[TokenLogprob]) -> list[Read]:
        """Put the tokens beside the first part that can carry them; without one, they wait for the next.

        A call beyond the one that is allowed completes the answer.
        """
        read: list[Read] = []
        for part in parts:
            if isinstance(part, CallOpened) and part.index >= self._most_calls:
                self.complete = True
                break
            carries = isinstance(part, Content | Reasoning)
            read.append((part, logprobs if carries else ()))
            if carries:
                logprobs = ()
        if logprobs and self._aligner:
            self._aligner.give_back(logprobs)
        return read


def _parser(request: ChatRequest, started: Started) -> Parser | None:
    """The parser of a choice's text; None where all of it is content.

    Plain completions are text as it is. So are chats of those who want to see special tokens, markers included: that is
    how OpenVINO Model Server has it.
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
    """Puts the parts of one choice together."""

    def __init__(self, index: int, *, logprobs: bool) -> None:
        self._index = index
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[tuple[str, str, list[str]]] = []
        self._logprobs: list[TokenLogprob] | None = [] if logprobs else None

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
        """Append content that no parser and no log probability belongs to: the usual case, once a token."""
        self._text.append(text)

    def choice(self, reason: FinishReason) -> Choice:
        """The whole choice."""
        return Choice(
            index=self._index,
            text="".join(self._text),
            reason=reason,
            reasoning="".join(self._reasoning),
            calls=tuple(
                Call(id=call_id, name=name, arguments="".join(arguments)) for call_id, name, arguments in self._calls
            ),
            logprobs=None if self._logprobs is None else tuple(self._logprobs),
        )


class _Aligner:
    """Keeps tokens back until text that they are part of is shown.

    Text is held back for incomplete characters and possible stop strings, and cut off where a stop string
    matched; tokens whose text never shows are never told.
    """

    def __init__(self) -> None:
        self._waiting: deque[TokenLogprob] = deque()
        self._token_start = 0
        self._text_end = 0

    def take(self, delta: Delta) -> list[TokenLogprob]:
        """Return the tokens that begin before the end of the text that is shown now. Offsets are in bytes."""
        self._waiting.extend(map(TokenLogprob, delta.pieces, delta.logprobs))
        self._text_end += len(delta.text.encode())
        ready = []
        while self._waiting and self._token_start < self._text_end:
            token = self._waiting.popleft()
            self._token_start += len(token.piece)
            ready.append(token)
        return ready

    def give_back(self, tokens: Sequence[TokenLogprob]) -> None:
        """Keep tokens for the next text after all: a parser still holds theirs."""
        self._waiting.extendleft(reversed(tokens))
        self._token_start -= sum(len(token.piece) for token in tokens)

    def rest(self) -> list[TokenLogprob]:
        """All tokens that still wait."""
        rest = list(self._waiting)
        self._waiting.clear()
        return rest
