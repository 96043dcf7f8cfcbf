"""Families whose calls are JSON between markers: objects with a name and arguments, or lists of them."""

from shared.parsers.format import LISTED, CallShape, ToolFormat
from shared.parsers.json_calls import read_json_calls, read_mistral_calls


def _between(
    name: str, begin: str, end: str, *aliases: str, item: tuple[str, str] = LISTED, triggers: tuple[str, ...] = ()
) -> ToolFormat:
    """A list of calls between markers."""
    return ToolFormat(
        name=name,
        aliases=aliases,
        triggers=triggers or (begin,),
        ends=(end,),
        special_tokens=(begin, end),
        read=read_json_calls,
        shape=CallShape(trigger=begin, begin=begin, end=end, content="calls", item=item),
    )


def _object(
    name: str, begin: str, end: str, *, triggers: tuple[str, ...], key: str = "arguments", single: bool = False
) -> ToolFormat:
    """An object after a marker."""
    return ToolFormat(
        name=name,
        triggers=triggers,
        ends=(end,) if end else (),
        special_tokens=(*triggers, *((end,) if end else ())),
        read=read_json_calls,
        shape=CallShape(trigger=begin, begin=f'{begin}{{"name": "{{name}}", "{key}": ', end=f"}}{end}", single=single),
    )


TOOLS = (
    ToolFormat(
        name="hermes",
        aliases=("granite4", "hermes3"),
        triggers=("<tool_call>",),
        ends=("</tool_call>",),
        special_tokens=("<tool_call>", "</tool_call>"),
        read=read_json_calls,
        shape=CallShape(
            trigger="<tool_call>",
            begin='<tool_call>\n{"name": "{name}", "arguments": ',
            end="}\n</tool_call>",
            separator="\n",
        ),
    ),
    ToolFormat(
        name="llama3_json",
        aliases=("llama3", "llama4_json"),
        triggers=("<|python_tag|>", "<|python_start|>"),
        leads=("{",),
        ends=("<|python_end|>",),
        special_tokens=("<|python_tag|>", "<|python_start|>", "<|python_end|>"),
        read=read_json_calls,
        shape=CallShape(trigger='{"name": "', begin='{"name": "{name}", "parameters": ', end="}", separator=";"),
    ),
    ToolFormat(
        name="xlam",
        triggers=("[TOOL_CALLS]", "<tool_call>"),
        leads=("[", "```json"),
        ends=("</tool_call>", "```"),
        read=read_json_calls,
        shape=CallShape(trigger='[{"name": "', begin='[{"name": "{name}", "arguments": ', end="}]", separator="\n"),
    ),
    ToolFormat(
        name="mistral",
        leads=('[{"name"', '[{ "name"', '[ {"name"'),
        triggers=("[TOOL_CALLS]",),
        special_tokens=("[TOOL_CALLS]",),
        read=read_mistral_calls,
        shape=CallShape(trigger="[TOOL_CALLS]", begin="[TOOL_CALLS]", end="", content="calls"),
    ),
    ToolFormat(
        name="mistral_args",
        leads=('[{"name"', '[{ "name"', '[ {"name"'),
        aliases=("devstral",),
        triggers=("[TOOL_CALLS]",),
        special_tokens=("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"),
        read=read_mistral_calls,
        shape=CallShape(trigger="[TOOL_CALLS]", begin="[TOOL_CALLS]{name}[ARGS]", end=""),
    ),
    ToolFormat(
        name="phi4",
        aliases=("phi4_mini_json",),
        triggers=("<|tool_call|>", "functools"),
        ends=("<|/tool_call|>",),
        special_tokens=("<|tool_call|>", "<|/tool_call|>"),
        read=read_json_calls,
        shape=CallShape(trigger="<|tool_call|>", begin="<|tool_call|>", end="<|/tool_call|>", content="calls"),
    ),
    ToolFormat(
        name="granite",
        triggers=("<|tool_call|>", "<tool_call>"),
        ends=("</tool_call>",),
        special_tokens=("<|tool_call|>",),
        read=read_json_calls,
        shape=CallShape(trigger="<|tool_call|>", begin="<|tool_call|>", end="", content="calls"),
    ),
    _between("nemotron_nano_v2", "<TOOLCALL>", "</TOOLCALL>", "nemotron_json"),
    _between("tool_calls", "<tool_calls>", "</tool_calls>", "apriel", "hunyuan_a13b", "jamba", "minimax"),
    _between("apertus", "<|tools_prefix|>", "<|tools_suffix|>", item=('{"{name}": ', "}")),
    _between(
        "cohere",
        "<|START_ACTION|>",
        "<|END_ACTION|>",
        "cohere_command3",
        item=('{"tool_call_id": "{n}", "tool_name": "{name}", "parameters": ', "}"),
    ),
    _between(
        "command_r",
        "Action:\n```json\n",
        "\n```",
        item=('{"tool_name": "{name}", "parameters": ', "}"),
        triggers=("Action:\n```json", "Action: ```json"),
    ),
    _object("longcat", "<longcat_tool_call>\n", "\n</longcat_tool_call>", triggers=("<longcat_tool_call>",)),
    _object("granite_20b", "<function_call> ", "", triggers=("<function_call>",)),
    _object(
        "internlm",
        "<|action_start|><|plugin|>\n",
        "<|action_end|>",
        triggers=("<|action_start|><|plugin|>",),
        key="parameters",
    ),
    _object(
        "gigachat3",
        "function call<|role_sep|>\n",
        "",
        triggers=("function call<|role_sep|>", "<|message_sep|>\n\nfunction call<|role_sep|>"),
        single=True,
    ),
    _object("gigachat31", "<|function_call|>", "", triggers=("<|function_call|>",), single=True),
)
