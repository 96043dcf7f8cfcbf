"""Families that write a call as its tool's name and JSON arguments, with markers between."""

import re
from functools import partial

from shared.parsers.format import CallShape, ToolFormat
from shared.parsers.named_calls import read_named_calls

_KIMI_CALLS = ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>")
_KIMI_TOKENS = ("<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>")
_SOLAR_TOKENS = ("<|tool_call:begin|>", "<|tool_call:name|>", "<|tool_call:args|>", "<|tool_call:end|>")

_DEEPSEEK_CALLS = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")  # noqa: RUF001 (the tokens have a full-width bar)
_DEEPSEEK_BEGIN, _DEEPSEEK_END = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"  # noqa: RUF001
_DEEPSEEK_SEPARATOR = "<｜tool▁sep｜>"  # noqa: RUF001


def _deepseek(name: str, before: str, name_end: str, end: str, separator: str = "") -> ToolFormat:
    """DeepSeek's; ``before`` is between the beginning and the name."""
    return ToolFormat(
        name=name,
        triggers=(_DEEPSEEK_CALLS[0], _DEEPSEEK_BEGIN),
        ends=(_DEEPSEEK_CALLS[1],),
        special_tokens=(*_DEEPSEEK_CALLS, _DEEPSEEK_BEGIN, _DEEPSEEK_END, _DEEPSEEK_SEPARATOR),
        read=partial(
            read_named_calls,
            call=_DEEPSEEK_BEGIN,
            name_end=name_end.strip("\n"),
            header=re.compile(rf"\s*(?:{re.escape(before)})?(?P<name>\S+)\s*"),
        ),
        shape=CallShape(
            trigger=_DEEPSEEK_BEGIN,
            begin=f"{_DEEPSEEK_BEGIN}{before}{{name}}{name_end}",
            end=end,
            separator=separator,
            group=_DEEPSEEK_CALLS,
        ),
    )


TOOLS = (
    # V3 and R1 write the type, a separator, the name, and the arguments in a JSON code block.
    _deepseek("deepseek_v3", f"function{_DEEPSEEK_SEPARATOR}", "\n```json\n", f"\n```{_DEEPSEEK_END}", "\n"),
    _deepseek("deepseek_v31", "", _DEEPSEEK_SEPARATOR, _DEEPSEEK_END),
    ToolFormat(
        name="kimi_k2",
        triggers=(_KIMI_CALLS[0], "<|tool_call_begin|>"),
        ends=(_KIMI_CALLS[1],),
        special_tokens=(*_KIMI_CALLS, *_KIMI_TOKENS),
        in_reasoning=True,
        read=partial(
            read_named_calls,
            call="<|tool_call_begin|>",
            name_end="<|tool_call_argument_begin|>",
            header=re.compile(r"\s*(?:functions\.)?(?P<name>\S+?)(?::\d+)?\s*"),
        ),
        shape=CallShape(
            trigger="<|tool_call_begin|>functions.",
            begin="<|tool_call_begin|>functions.{name}:{n}<|tool_call_argument_begin|>",
            end="<|tool_call_end|>",
            group=_KIMI_CALLS,
        ),
    ),
    ToolFormat(
        name="solar_open",
        triggers=("<|tool_calls|>", "<|tool_call:begin|>"),
        ends=("<|calls|>",),
        special_tokens=("<|tool_calls|>", "<|calls|>", *_SOLAR_TOKENS),
        read=partial(
            read_named_calls,
            call="<|tool_call:begin|>",
            name_end="<|tool_call:args|>",
            header=re.compile(r".*<\|tool_call:name\|>\s*(?P<name>\S+)\s*", re.DOTALL),
        ),
        shape=CallShape(
            trigger="<|tool_call:begin|>",
            begin="<|tool_call:begin|>call<|tool_call:name|>{name}<|tool_call:args|>",
            end="<|tool_call:end|>",
            group=("<|tool_calls|>", "<|calls|>"),
        ),
    ),
    ToolFormat(
        name="functionary",
        aliases=("functionary_v3.1",),
        triggers=("<function=",),
        read=partial(read_named_calls, call="<function=", name_end=">"),
        shape=CallShape(trigger="<function=", begin="<function={name}>", end="</function>"),
    ),
    ToolFormat(
        name="functionary_v32",
        triggers=(">>>",),
        leads=("all\n", "{name}\n{"),
        read=partial(read_named_calls, call=">>>", name_end="\n", skipped="all\n"),
        shape=CallShape(trigger=">>>", begin=">>>{name}\n", end=""),
    ),
)
