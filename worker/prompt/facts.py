"""What a chat template does with a conversation, as :mod:`worker.prompt.probe` finds when a model is loaded."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from shared.parsers.formats import NONE, OutputFormat, ToolFormatName
from shared.protocol.formats import ModelFormats

_REPLACED: Mapping[str, str] = {
    "system": "system_messages_merged",
    "later_system_messages": "later_system_messages_merged",
    "tools_as_text": "tools_as_text",
    "written_calls": "calls_as_text",
    "call_ids": "call_ids_mapped",
    "single_calls": "calls_separated",
    "separate_content": "content_separated",
    "user_first": "user_turn_added",
    "bridged_results": "tool_results_bridged",
    "merged_turns": "turns_merged",
}
"""What a field that is not as usual does to messages, as users see it."""


class TemplateFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The form of conversations that a template renders completely. The default is the usual form.

    Form of the variables:

    - ``parts``: content is a list of parts, otherwise a text.
    - ``object_arguments``: a tool call's arguments are an object, otherwise JSON text.
    - ``text_arguments``: arguments may be text although they are usually an object.
    - ``null_content``: a message with only tool calls has ``None`` as content, otherwise "".
    - ``call_ids``: ids of calls are those of the client, or ``short``: nine letters and digits, or ``named``: Kimi K2's
      ``functions.NAME:NUMBER``.
    - ``described_tools``: every tool and parameter has a description.
    - ``tools_variable``: without tools, the variable ``tools`` is ``None``, otherwise undefined.
    - ``developer``: the template has that role, otherwise it is replaced by "system".
    - ``reasoning_key``: the name of a message's reasoning field.

    Messages that the template refuses or loses, and what they become:

    - ``system``: system messages are accepted, otherwise they become text of the user's message.
    - ``later_system_messages``: they are accepted within a conversation too.
    - ``tools_as_text``: the template shows no tools, or calls are in an unknown format: a message describes the tools.
    - ``written_calls``: the format in which calls are written into the content, because the template loses them.
    - ``single_calls``: each call and its result is a turn of its own.
    - ``separate_content``: content and calls are two messages.
    - ``user_first``: the first message is the user's.
    - ``bridged_results``: a message of the assistant is between a tool result and a message of the user.
    - ``merged_turns``: consecutive messages of the user or of the assistant become one.

    ``output`` is the format of the model's output.
    """

    parts: bool = False
    object_arguments: bool = True
    text_arguments: bool = True
    null_content: bool = False
    call_ids: Literal["own", "short", "named"] = "own"
    described_tools: bool = False
    tools_variable: bool = True
    developer: bool = False
    reasoning_key: str = "reasoning_content"
    system: bool = True
    later_system_messages: bool = True
    tools_as_text: bool = False
    written_calls: ToolFormatName | None = None
    single_calls: bool = False
    separate_content: bool = False
    user_first: bool = False
    bridged_results: bool = False
    merged_turns: bool = False
    output: OutputFormat = OutputFormat()

    @property
    def formats(self) -> ModelFormats:
        """The formats of the output, and what is replaced in messages."""
        usual = TemplateFacts()
        return ModelFormats(
            tool_parser=self.output.tools or NONE,
            reasoning_parser=self.output.reasoning or NONE,
            replaced=tuple(name for field, name in _REPLACED.items() if getattr(self, field) != getattr(usual, field)),
        )
