"""Families whose calls are a list of Python calls."""

from shared.parsers.format import CallShape, ToolFormat
from shared.parsers.pythonic import read_pythonic_calls


def _lines(name: str, begin: str, end: str, fence: str = "", fence_end: str = "") -> ToolFormat:
    """Calls on lines of their own, perhaps in a code block."""
    return ToolFormat(
        name=name,
        triggers=(begin,),
        ends=(end,),
        special_tokens=(begin, end),
        signs=(fence,) if fence else (),
        read=read_pythonic_calls,
        shape=CallShape(
            trigger=begin,
            begin=f"{begin}\n{fence}",
            end=f"{fence_end}\n{end}",
            content="python_calls",
            separator="\n",
        ),
    )


TOOLS = (
    ToolFormat(
        name="llama_pythonic",
        aliases=("llama4_pythonic", "pythonic"),
        triggers=("<|python_start|>", "<|python_tag|>"),
        leads=("[",),
        ends=("<|python_end|>",),
        special_tokens=("<|python_start|>", "<|python_end|>", "<|python_tag|>"),
        read=read_pythonic_calls,
        shape=CallShape(
            trigger="<|python_start|>", begin="<|python_start|>[", end="]<|python_end|>", content="python_calls"
        ),
    ),
    ToolFormat(
        name="lfm2",
        triggers=("<|tool_call_start|>",),
        ends=("<|tool_call_end|>",),
        special_tokens=("<|tool_call_start|>", "<|tool_call_end|>"),
        read=read_pythonic_calls,
        shape=CallShape(
            trigger="<|tool_call_start|>",
            begin="<|tool_call_start|>[",
            end="]<|tool_call_end|>",
            content="python_calls",
        ),
    ),
    _lines("olmo3", "<function_calls>", "</function_calls>"),
    _lines("minicpm3", "<|tool_call_start|>", "<|tool_call_end|>", "```python\n", "\n```"),
)
