"""Output formats: how model families mark reasoning and tool calls in generated text.

The worker finds a model's format by rendering its chat template, and reports its name; the API selects the parser by
name.
Sources: the families' chat templates and the tool calling sections of their model cards.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

ToolFormatName = Literal[
    "hermes",
    "qwen3_coder",
    "llama3_json",
    "llama_pythonic",
    "lfm2",
    "mistral",
    "mistral_args",
    "phi4",
    "granite",
    "deepseek_v3",
    "deepseek_v31",
    "harmony",
]
ReasoningFormatName = Literal["think", "mistral", "granite", "harmony"]

DEEPSEEK_CALLS_BEGIN = "<｜tool▁calls▁begin｜>"  # noqa: RUF001 (the tokens have a full-width bar)
DEEPSEEK_CALLS_END = "<｜tool▁calls▁end｜>"  # noqa: RUF001
DEEPSEEK_CALL_BEGIN = "<｜tool▁call▁begin｜>"  # noqa: RUF001
DEEPSEEK_CALL_END = "<｜tool▁call▁end｜>"  # noqa: RUF001
DEEPSEEK_SEPARATOR = "<｜tool▁sep｜>"  # noqa: RUF001

HARMONY_START = "<|start|>"
HARMONY_CHANNEL = "<|channel|>"
HARMONY_CONSTRAIN = "<|constrain|>"
HARMONY_MESSAGE = "<|message|>"
HARMONY_ENDS = ("<|end|>", "<|call|>", "<|return|>")


class CallShape(msgspec.Struct, frozen=True, kw_only=True):
    """The form of a tool call, as a tag of XGrammar's ``triggered_tags``.

    ``begin`` starts with ``trigger``. ``content`` is the form of the text between ``begin`` and ``end``, which a schema
    constrains: ``arguments`` is the tool's parameters as JSON, ``xml`` the same in XGrammar's ``qwen_xml_parameter``
    form. In both, ``{name}`` in ``begin`` is replaced by the tool's name. ``calls`` is a JSON array of
    ``{"name", "arguments"}`` objects, with one tag for all tools.
    """

    trigger: str
    begin: str
    end: str
    content: Literal["arguments", "calls", "xml"] = "arguments"

    def begin_for(self, tool: str) -> str:
        return self.begin.replace("{name}", tool)


class ToolFormat(msgspec.Struct, frozen=True, kw_only=True):
    """The tool-call format of a model family.

    ``triggers`` start a call anywhere in the text. ``leads`` start one only at the beginning of the text, and only if
    the name of a known tool follows, because plain content may begin with them too. ``ends`` may close several calls.
    ``special_tokens`` must stay in the text, although many tokenizers skip them when they decode. ``shape`` is ``None``
    if calls are written as Python code, which no schema can constrain. ``in_reasoning``: triggers start a call inside
    reasoning too, because the family's models forget to close it.
    """

    name: ToolFormatName
    triggers: tuple[str, ...] = ()
    leads: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    special_tokens: tuple[str, ...] = ()
    shape: CallShape | None = None
    in_reasoning: bool = False


class ReasoningFormat(msgspec.Struct, frozen=True, kw_only=True):
    """The texts that enclose a model family's reasoning; ``special_tokens`` as in :class:`ToolFormat`."""

    name: ReasoningFormatName
    begin: str
    end: str
    special_tokens: tuple[str, ...] = ()


_HARMONY_TOKENS = (HARMONY_START, HARMONY_CHANNEL, HARMONY_CONSTRAIN, HARMONY_MESSAGE, *HARMONY_ENDS)
_DEEPSEEK_TOKENS = (
    DEEPSEEK_CALLS_BEGIN,
    DEEPSEEK_CALLS_END,
    DEEPSEEK_CALL_BEGIN,
    DEEPSEEK_CALL_END,
    DEEPSEEK_SEPARATOR,
)

TOOL_FORMATS: Mapping[ToolFormatName, ToolFormat] = {
    tool_format.name: tool_format
    for tool_format in (
        ToolFormat(
            name="hermes",
            triggers=("<tool_call>",),
            ends=("</tool_call>",),
            special_tokens=("<tool_call>", "</tool_call>"),
            shape=CallShape(
                trigger="<tool_call>",
                begin='<tool_call>\n{"name": "{name}", "arguments": ',
                end="}\n</tool_call>",
            ),
        ),
        ToolFormat(
            name="qwen3_coder",
            triggers=("<tool_call>", "<function="),
            ends=("</tool_call>",),
            special_tokens=("<tool_call>", "</tool_call>"),
            shape=CallShape(
                trigger="<tool_call>\n<function=",
                begin="<tool_call>\n<function={name}>\n",
                end="\n</function>\n</tool_call>",
                content="xml",
            ),
            in_reasoning=True,
        ),
        ToolFormat(
            name="llama3_json",
            triggers=("<|python_tag|>", "<|python_start|>"),
            leads=("{",),
            ends=("<|python_end|>",),
            special_tokens=("<|python_tag|>", "<|python_start|>", "<|python_end|>"),
            shape=CallShape(trigger='{"name": "', begin='{"name": "{name}", "parameters": ', end="}"),
        ),
        ToolFormat(
            name="llama_pythonic",
            triggers=("<|python_start|>", "<|python_tag|>"),
            leads=("[",),
            ends=("<|python_end|>",),
            special_tokens=("<|python_start|>", "<|python_end|>", "<|python_tag|>"),
        ),
        ToolFormat(
            name="lfm2",
            triggers=("<|tool_call_start|>",),
            ends=("<|tool_call_end|>",),
            special_tokens=("<|tool_call_start|>", "<|tool_call_end|>"),
        ),
        ToolFormat(
            name="mistral",
            triggers=("[TOOL_CALLS]",),
            special_tokens=("[TOOL_CALLS]",),
            shape=CallShape(trigger="[TOOL_CALLS]", begin="[TOOL_CALLS]", end="", content="calls"),
        ),
        ToolFormat(
            name="mistral_args",
            triggers=("[TOOL_CALLS]",),
            special_tokens=("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"),
            shape=CallShape(trigger="[TOOL_CALLS]", begin="[TOOL_CALLS]{name}[ARGS]", end=""),
        ),
        ToolFormat(
            name="phi4",
            triggers=("<|tool_call|>", "functools"),
            ends=("<|/tool_call|>",),
            special_tokens=("<|tool_call|>", "<|/tool_call|>"),
            shape=CallShape(trigger="<|tool_call|>", begin="<|tool_call|>", end="<|/tool_call|>", content="calls"),
        ),
        ToolFormat(
            name="granite",
            triggers=("<|tool_call|>", "<tool_call>"),
            ends=("</tool_call>",),
            special_tokens=("<|tool_call|>",),
            shape=CallShape(trigger="<|tool_call|>", begin="<|tool_call|>", end="", content="calls"),
        ),
        ToolFormat(
            name="deepseek_v3",
            triggers=(DEEPSEEK_CALLS_BEGIN, DEEPSEEK_CALL_BEGIN),
            ends=(DEEPSEEK_CALLS_END,),
            special_tokens=_DEEPSEEK_TOKENS,
            shape=CallShape(
                trigger=DEEPSEEK_CALL_BEGIN,
                begin=f"{DEEPSEEK_CALL_BEGIN}function{DEEPSEEK_SEPARATOR}{{name}}\n```json\n",
                end=f"\n```{DEEPSEEK_CALL_END}",
            ),
        ),
        ToolFormat(
            name="deepseek_v31",
            triggers=(DEEPSEEK_CALLS_BEGIN, DEEPSEEK_CALL_BEGIN),
            ends=(DEEPSEEK_CALLS_END,),
            special_tokens=_DEEPSEEK_TOKENS,
            shape=CallShape(
                trigger=DEEPSEEK_CALL_BEGIN,
                begin=f"{DEEPSEEK_CALL_BEGIN}{{name}}{DEEPSEEK_SEPARATOR}",
                end=DEEPSEEK_CALL_END,
            ),
        ),
        ToolFormat(
            name="harmony",
            special_tokens=_HARMONY_TOKENS,
            shape=CallShape(
                trigger="<|channel|>commentary to=functions.",
                begin="<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>",
                end="<|call|>",
            ),
        ),
    )
}

REASONING_FORMATS: Mapping[ReasoningFormatName, ReasoningFormat] = {
    reasoning_format.name: reasoning_format
    for reasoning_format in (
        ReasoningFormat(name="think", begin="<think>", end="</think>", special_tokens=("<think>", "</think>")),
        ReasoningFormat(name="mistral", begin="[THINK]", end="[/THINK]", special_tokens=("[THINK]", "[/THINK]")),
        ReasoningFormat(name="granite", begin="Here is my thought process:", end="Here is my response:"),
        ReasoningFormat(
            name="harmony",
            begin="<|channel|>analysis<|message|>",
            end="<|end|>",
            special_tokens=_HARMONY_TOKENS,
        ),
    )
}

MARKERS = frozenset(
    token
    for tokens in (
        *(form.special_tokens for form in TOOL_FORMATS.values()),
        *(form.special_tokens for form in REASONING_FORMATS.values()),
    )
    for token in tokens
)
"""The special tokens of all formats. A grammar can match only these special tokens by their text."""


class OutputFormat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The formats that a model's output may contain besides plain content. ``None``: none, or an unknown one."""

    tools: ToolFormatName | None = None
    reasoning: ReasoningFormatName | None = None

    def special_tokens(self) -> frozenset[str]:
        """Return the tokens that must stay in the text when special tokens are skipped."""
        tools = TOOL_FORMATS[self.tools].special_tokens if self.tools else ()
        reasoning = REASONING_FORMATS[self.reasoning].special_tokens if self.reasoning else ()
        return frozenset(tools + reasoning)

    def opens_reasoning(self, prompt: str) -> bool:
        """Return whether the output starts inside the reasoning, because the rendered ``prompt`` opens it at its end.

        Only the end is checked: it comes from the template, whereas a client's message may contain the same text.
        """
        return self.reasoning is not None and prompt.rstrip().endswith(REASONING_FORMATS[self.reasoning].begin)
