"""Finds out by rendering what a chat template does, when a model is loaded.

Nothing is concluded from the source of a template. Small conversations are rendered as those of clients are. A
conversation whose texts are not all in the prompt is rendered again with each of its remedies, and the first remedy
that works applies from then on. A tool-call format is the model's only if its parser reads a call that the template
has written.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from shared.parsers import CallArguments, CallClosed, CallOpened, parser_for
from shared.parsers.formats import (
    AUTO,
    NONE,
    REASONING_FORMATS,
    TOOL_FORMATS,
    OutputFormat,
    ReasoningFormatName,
    ToolFormatName,
)
from shared.protocol.request import ChatRequest, Message, Tool, ToolCall
from worker.prompt.conversation import render
from worker.prompt.facts import TemplateFacts
from worker.prompt.template import ChatTemplate, ChatTemplateError
from worker.prompt.tools import TOOL_FORMAT

_PROPERTIES = '{"place": {"type": "string"}, "depth": {"type": "integer"}}'
_PARAMETERS = f'{{"type": "object", "properties": {_PROPERTIES}, "required": ["place"]}}'
_CITY = Tool(name="find_city", description="Finds a city.", parameters=_PARAMETERS)
_RIVER = Tool(name="find_river", description="Finds a river.", parameters=_PARAMETERS)
_BARE = Tool(name="find_lake")


def _call(name: str, place: str, call_id: str) -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=f'{{"place": "{place}", "depth": 3}}')


_SYSTEM = Message(role="system", content="Xanadu")
_SYSTEM_AGAIN = Message(role="system", content="Ithaca")
_USER = Message(role="user", content="Utopia")
_USER_AGAIN = Message(role="user", content="Elysium")
_ASSISTANT = Message(role="assistant", content="Avalon")
_ASSISTANT_AGAIN = Message(role="assistant", content="Camelot")
# Some templates require ids of nine letters and digits.
_FIRST, _SECOND = _call("find_city", "Babylon", "call12345"), _call("find_river", "Carthage", "call67890")
_CALLS = Message(role="assistant", tool_calls=(_FIRST,))
_RESULT = Message(role="tool", content="Qumran", name="find_city", tool_call_id="call12345")
_RESULT_AGAIN = Message(role="tool", content="Sheba", name="find_river", tool_call_id="call67890")
_SWITCHES = (
    None,
    *(f'{{"{name}": {value}}}' for name in ("enable_thinking", "thinking") for value in ("true", "false")),
)
"""Variables that turn the reasoning of common families on and off."""
_LONG_ID = "call_0123456789abcdef"


def _changed(message: Message, **fields: Any) -> Message:
    return msgspec.structs.replace(message, **fields)


class _Probe(NamedTuple):
    """A conversation, and the changes that may help if the prompt does not contain all of its texts."""

    messages: Sequence[Message]
    remedies: Sequence[Mapping[str, Any]]
    tools: Sequence[Tool] = ()
    expected: Sequence[str] = ()
    """Texts that the prompt must contain besides those of the messages."""


_FORM = (
    _Probe([_USER], [{"tools_variable": False}, {"parts": True}, {"parts": True, "tools_variable": False}]),
    _Probe([_SYSTEM, _USER], [{"system": False}]),
    _Probe([_USER, _SYSTEM, _ASSISTANT, _USER_AGAIN], [{"later_system_messages": False}]),
    _Probe([_SYSTEM, _SYSTEM_AGAIN, _USER], [{"later_system_messages": False}]),
    _Probe([_SYSTEM, _USER, _SYSTEM_AGAIN, _USER_AGAIN], [{"later_system_messages": False}]),
)
_TOOLS = (
    _Probe([_SYSTEM, _USER], [{"described_tools": True}, {"system": False}], [_BARE, _RIVER], ["find_lake"]),
    _Probe([_USER], [{"described_tools": True}], [_BARE, _RIVER], ["find_lake"]),
)
_CALL_FORMS = [
    {"object_arguments": objects, "null_content": null} for objects in (True, False) for null in (False, True)
][1:]
_PAIR = (_CITY, _RIVER)
_CALL = _Probe([_USER, _CALLS, _RESULT], _CALL_FORMS, _PAIR, ["find_river"])
_ANSWERED = _Probe([_USER, _CALLS, _RESULT, _ASSISTANT, _USER_AGAIN], [], _PAIR)
_CALLING = (
    _Probe(
        [
            _USER,
            _changed(_CALLS, tool_calls=(msgspec.structs.replace(_FIRST, id=_LONG_ID),)),
            _changed(_RESULT, tool_call_id=_LONG_ID),
        ],
        [{"call_ids": "short"}],
        _PAIR,
    ),
    _Probe(
        [_USER, _changed(_CALLS, tool_calls=(_FIRST, _SECOND)), _RESULT, _RESULT_AGAIN], [{"single_calls": True}], _PAIR
    ),
    _Probe([_SYSTEM, _USER, _CALLS, _RESULT], [{"system": False}], _PAIR),
    _Probe(
        [_USER, _changed(_CALLS, content="Avalon", reasoning="Hm."), _RESULT, _ASSISTANT_AGAIN, _USER_AGAIN],
        [{"separate_content": True}],
        _PAIR,
    ),
)
_BROKEN_CALL = _Probe(
    [
        _USER,
        _changed(_CALLS, tool_calls=(ToolCall(id="call12345", name="find_city", arguments='{"place": "Babylon'),)),
        _RESULT,
    ],
    [{"text_arguments": False}],
    _PAIR,
)
_TURN_REMEDIES = [
    {"merged_turns": True},
    {"bridged_results": True},
    {"user_first": True},
    {"bridged_results": True, "merged_turns": True},
    {"user_first": True, "merged_turns": True},
    {"later_system_messages": False},
    {"later_system_messages": False, "merged_turns": True},
]
_TURNS = tuple(
    _Probe(messages, _TURN_REMEDIES, _PAIR if _RESULT in messages else ())
    for messages in (
        [_USER, _USER_AGAIN],
        [_USER, _ASSISTANT, _ASSISTANT_AGAIN, _USER_AGAIN],
        [_ASSISTANT, _USER],
        [_USER, _CALLS, _RESULT, _USER_AGAIN],
        _ANSWERED.messages,
        [_USER, _SYSTEM, _USER_AGAIN],
    )
)


def probe(
    template: ChatTemplate,
    special_texts: Container[str] = (),
    tool_parser: str = AUTO,
    reasoning_parser: str = AUTO,
) -> TemplateFacts:
    """Return what ``template`` does. ``special_texts`` are the special tokens of the model's vocabulary.

    The parsers are values of :data:`~shared.parsers.formats.PARSERS`, which override what the template shows.
    """
    facts = _Prober(template, special_texts, tool_parser).facts
    output = facts.output
    if tool_parser == NONE:
        output = msgspec.structs.replace(output, tools=None)
    if reasoning_parser != AUTO:
        named = None if reasoning_parser == NONE else reasoning_parser
        output = msgspec.structs.replace(output, reasoning=named)
    return msgspec.structs.replace(facts, output=output)


class _Prober:
    def __init__(self, template: ChatTemplate, special_texts: Container[str], tool_parser: str) -> None:
        self._template = template
        self._special_texts = special_texts
        self._given = tool_parser if tool_parser in TOOL_FORMATS else None
        self.facts = TemplateFacts()
        for form in _FORM:
            self._mend(form)
        self._set(developer=self._has_developer(), reasoning_key=self._reasoning_key())
        shows_tools = all(self._mend(tools) for tools in _TOOLS)
        shows_calls = shows_tools and self._mend(_CALL)
        output = OutputFormat(tools=self._tool_format(shows_calls) if shows_tools else None)
        if output.tools is None:
            self._set(tools_as_text=True)
            output = OutputFormat(tools=self._given or TOOL_FORMAT)
        self._set(output=output)
        for calling in _CALLING:
            self._mend(calling)
        if self.facts.object_arguments:
            self._mend(_BROKEN_CALL)
        for turns in _TURNS:
            self._mend(turns)
        self._set(output=msgspec.structs.replace(output, reasoning=self._reasoning_format()))

    def _set(self, **changes: Any) -> None:
        self.facts = msgspec.structs.replace(self.facts, **changes)

    def _mend(self, what: _Probe) -> bool:
        """Return whether the template renders the conversation, perhaps with a remedy, which then applies."""
        if self._shows(what, self.facts):
            return True
        for remedy in what.remedies:
            candidate = msgspec.structs.replace(self.facts, **remedy)
            if self._shows(what, candidate):
                self.facts = candidate
                return True
        return False

    def _shows(self, what: _Probe, facts: TemplateFacts) -> bool:
        text = self._render(what.messages, what.tools, facts)
        if text is None or not all(word in text for word in (*_words(what.messages), *what.expected)):
            return False
        # A Python dictionary, doubly escaped JSON or None means that the template expects another form.
        return (
            "{'place': 'Babylon" not in text
            and '\\"Babylon' not in text
            and not (facts.null_content and "None" in text)
        )

    def _render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        facts: TemplateFacts | None = None,
        *,
        variables: str | None = None,
        opened: bool = True,
    ) -> str | None:
        """Return the prompt, or None if the template refuses the conversation."""
        request = ChatRequest(
            model="",
            messages=tuple(messages),
            tools=tuple(tools),
            template_kwargs=variables,
            turn="opened" if opened else "none",
        )
        try:
            return render(self._template, request, facts or self.facts)
        except ChatTemplateError:
            return None

    def _has_developer(self) -> bool:
        """Return whether the template has this role. Many write the name of any role."""
        facts = msgspec.structs.replace(self.facts, developer=True, system=True, later_system_messages=True)
        known, unknown = (
            self._render([_changed(_SYSTEM, role=role), _USER], facts=facts) or "" for role in ("developer", "stranger")
        )
        return _SYSTEM.content in known and known != unknown.replace("stranger", "developer")

    def _reasoning_key(self) -> str:
        keys = ("reasoning_content", "thinking", "reasoning")
        thought = _changed(_ASSISTANT, reasoning="Shangri-La")
        histories = (
            [_USER, thought],
            [_USER, _changed(_CALLS, reasoning="Shangri-La"), _RESULT],
            [_USER, thought, _USER],
        )
        for key in keys:
            facts = msgspec.structs.replace(self.facts, reasoning_key=key)
            for history in histories:
                if "Shangri-La" in (self._render(history, facts=facts, opened=False) or ""):
                    return key
        return keys[0]

    def _tool_format(self, shows_calls: bool) -> ToolFormatName | None:
        """Return the format of calls; None if it is not known.

        It is the one that the template writes. If it writes none, or only JSON, it is that of its instructions or of
        the vocabulary, and calls are written into the content.
        """
        written = self._given or (self._written_format() if shows_calls else None)
        before = self.facts
        if shows_calls and written is None:
            self._set(call_ids="named")
            written = self._written_format()
            if written is None:
                self.facts = before
        if shows_calls and written and (self._given or not TOOL_FORMATS[written].leads):
            return written
        instructions = (self._render([_USER], _PAIR) or "").replace(self._render([_USER]) or "", "")
        candidates = [self._given] if self._given else _ranked(instructions)
        if shows_calls and written is None and (named := self._written_format(whole=False)):
            candidates.insert(0, named)
        if not (shows_calls or self._given):
            candidates += [name for name in TOOL_FORMATS if _in_vocabulary(name, self._special_texts)]
        before = self.facts
        for name in candidates:
            self._set(written_calls=name)
            shown = all(self._shows(what, self.facts) for what in (_CALL, _ANSWERED))
            if shown and self._written_format() == name:
                return name
            self.facts = before
        return written

    def _written_format(self, *, whole: bool = True) -> ToolFormatName | None:
        """Return the format whose parser reads the call that the template writes, the one with most signs first.

        If not ``whole``, the name of the call suffices: some templates write arguments that nobody can read.
        """
        for text in self._written_calls():
            for name in [*_ranked(text), *(name for name, form in TOOL_FORMATS.items() if form.leads)]:
                if _reads(name, text, whole=whole):
                    return name
        return None

    def _written_calls(self) -> Iterator[str]:
        """Yield the text between a message of the user and a tool result, from each place at which output may start."""
        prompt = self._render(_CALL.messages, _CALL.tools) or ""
        end = prompt.rfind(_RESULT.content)
        answered = self._render([_USER, _ASSISTANT], _CALL.tools, opened=False) or ""
        for start in (self._render([_USER], _CALL.tools) or "", answered.partition(_ASSISTANT.content)[0]):
            if start and prompt.startswith(start):
                yield prompt[len(start) : end]
        yield prompt[prompt.rfind(_USER.content, 0, end) + len(_USER.content) : end]

    def _reasoning_format(self) -> ReasoningFormatName | None:
        """Return the format that the template writes, or removes from earlier messages."""
        thought = _changed(_ASSISTANT, reasoning="Hm.")
        prompts = [
            *(self._render([_USER], variables=variables) for variables in _SWITCHES),
            self._render([_USER, thought], opened=False),
            self._render([_USER, _changed(_CALLS, reasoning="Hm."), _RESULT], _PAIR),
        ]
        text = "\0".join(prompt for prompt in prompts if prompt)
        for name, form in REASONING_FORMATS.items():
            if form.begin in text or (form.end in text and not form.turn):
                return name
        for name, form in REASONING_FORMATS.items():
            mixed = _changed(_ASSISTANT, content=f"{form.begin}Shangri-La{form.end}Avalon")
            prompt = self._render([_USER, mixed, _USER, _ASSISTANT_AGAIN, _USER_AGAIN]) or ""
            if "Avalon" in prompt and "Shangri-La" not in prompt:
                return name
        return None


def _words(messages: Iterable[Message]) -> Iterator[str]:
    """Yield the texts of the messages."""
    for message in messages:
        yield message.content
        for call in message.tool_calls:
            yield call.name
            yield call.arguments.split('"')[3]


def _ranked(text: str) -> list[ToolFormatName]:
    """Return the formats that have a trigger in ``text``: those of which it has most, and lacks least, first."""
    signs = {}
    for name, form in TOOL_FORMATS.items():
        every = {*form.triggers, *form.ends, *form.special_tokens}
        begin = form.shape.begin_for("find_city").partition("{n}")[0]
        if any(trigger in text for trigger in (*form.triggers, *form.signs)):
            signs[name] = (
                sum(sign in text for sign in every) + (begin.strip() in text),
                -sum(sign not in text for sign in form.special_tokens),
                begin in text,
            )
    return sorted(signs, key=lambda name: signs[name], reverse=True)


def _in_vocabulary(name: ToolFormatName, special_texts: Container[str]) -> bool:
    tokens = TOOL_FORMATS[name].special_tokens
    return bool(tokens) and all(token in special_texts for token in tokens)


def _reads(name: ToolFormatName, text: str, *, whole: bool) -> bool:
    """Return whether the format's parser finds the call in ``text``, whole and alone."""
    parser = parser_for(OutputFormat(tools=name), _PAIR)
    if parser is None:
        return False
    parts = [*parser.feed(text), *parser.finish()]
    names = [part.name for part in parts if isinstance(part, CallOpened)]
    arguments = "".join(part.text for part in parts if isinstance(part, CallArguments))
    closed = any(isinstance(part, CallClosed) for part in parts)
    if not whole or names != ["find_city"] or not closed:
        return not whole and names == ["find_city"]
    return bool(msgspec.json.decode(arguments) == {"place": "Babylon", "depth": 3})
