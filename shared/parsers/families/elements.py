"""Families that write each argument as an element: Qwen3-Coder, and all that resemble XML."""

from shared.parsers.elements import read_element_calls
from shared.parsers.format import CallShape, Elements, ToolFormat

_PARAMETERS = Elements(
    call="<function=",
    name_ends=(">",),
    key="<parameter=",
    key_end=">",
    value_end="</parameter>",
    call_end="</function>",
    begin="<parameter={key}>\n",
    newline="\n",
)

TOOLS = (
    ToolFormat(
        name="qwen3_coder",
        aliases=("mimo", "qwen3_xml", "qwen3coder", "step3p5"),
        triggers=("<tool_call>", "<function="),
        ends=("</tool_call>",),
        special_tokens=("<tool_call>", "</tool_call>"),
        read=read_element_calls,
        shape=CallShape(
            trigger="<tool_call>\n<function=",
            begin="<tool_call>\n<function={name}>\n",
            end="\n</function>\n</tool_call>",
            content="elements",
            elements=_PARAMETERS,
            separator="\n",
        ),
        in_reasoning=True,
    ),
)
