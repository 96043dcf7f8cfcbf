"""Families whose calls are JSON between markers: objects with a name and arguments, or lists of them."""

from shared.parsers.format import CallShape, ToolFormat
from shared.parsers.json_calls import read_json_calls, read_mistral_calls

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
        name="mistral",
        triggers=("[TOOL_CALLS]",),
        special_tokens=("[TOOL_CALLS]",),
        read=read_mistral_calls,
        shape=CallShape(trigger="[TOOL_CALLS]", begin="[TOOL_CALLS]", end="", content="calls"),
    ),
    ToolFormat(
        name="mistral_args",
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
)
