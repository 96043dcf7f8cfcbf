"""Families that write each argument as an element: Qwen3-Coder, and all that resemble XML."""

from shared.parsers.elements import read_element_calls
from shared.parsers.format import CallShape, Elements, ToolFormat


def _format(
    name: str,
    elements: Elements,
    begin: str,
    end: str,
    group: tuple[str, str] | None = None,
    *,
    aliases: tuple[str, ...] = (),
    triggers: tuple[str, ...],
    ends: tuple[str, ...] = (),
    separator: str = "\n",
    special_tokens: tuple[str, ...] = (),
    in_reasoning: bool = False,
) -> ToolFormat:
    shape = CallShape(
        trigger=begin.partition("{name}")[0],
        begin=begin,
        end=end,
        content="elements",
        elements=elements,
        separator=separator,
        group=group,
    )
    return ToolFormat(
        name=name,
        aliases=aliases,
        triggers=triggers,
        ends=ends,
        special_tokens=special_tokens or (*triggers[:1], *ends),
        read=read_element_calls,
        shape=shape,
        in_reasoning=in_reasoning,
    )


def _functions(newline: str) -> Elements:
    """Qwen3-Coder's ``<function=NAME><parameter=KEY>VALUE``; ``newline`` is before and after a value."""
    return Elements(
        call="<function=",
        name_ends=(">", "\n"),
        key="<parameter=",
        key_end=">",
        value_end="</parameter>",
        call_end="</function>",
        begin=f"<parameter={{key}}>{newline}",
        newline=newline,
        trimmed=bool(newline),
    )


def _invocations(prefix: str, *, begin: str = "", text_begin: str = "", text_sign: str = "") -> Elements:
    """``<invoke name="NAME"><parameter name="KEY">VALUE``, with ``prefix`` before the names of the tags."""
    return Elements(
        call=f"<{prefix}invoke",
        name_ends=(">",),
        key=f"<{prefix}parameter",
        key_end=">",
        value_end=f"</{prefix}parameter>",
        call_end=f"</{prefix}invoke>",
        begin=begin or f'<{prefix}parameter name="{{key}}">',
        text_begin=text_begin,
        text_sign=text_sign,
    )


def _pairs(newline: str, suffix: str = "", name_end: str = "\n") -> Elements:
    """GLM's ``<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>``, with ``newline`` between; ``suffix``: in tags."""
    return Elements(
        call=f"<tool_call{suffix}>",
        name_ends=(name_end,),
        key=f"<arg_key{suffix}>",
        key_end=f"</arg_key{suffix}>",
        value=f"<arg_value{suffix}>",
        value_end=f"</arg_value{suffix}>",
        call_end=f"</tool_call{suffix}>",
        begin=f"<arg_key{suffix}>{{key}}</arg_key{suffix}>{newline}<arg_value{suffix}>",
        separator=newline,
    )


def _dsml(name: str, group: str) -> ToolFormat:
    """DeepSeek's markup language, whose values say whether they are strings. ``group`` is the tag around all calls."""
    bar = "｜DSML｜"  # noqa: RUF001 (the token has full-width bars)
    begin = f'<{bar}parameter name="{{key}}" string='
    group_tags = f"<{bar}{group}>", f"</{bar}{group}>"
    return _format(
        name,
        _invocations(bar, begin=f'{begin}"false">', text_begin=f'{begin}"true">', text_sign='string="true"'),
        f'<{bar}invoke name="{{name}}">\n',
        f"</{bar}invoke>",
        (f"{group_tags[0]}\n", f"\n{group_tags[1]}"),
        triggers=(group_tags[0], f"<{bar}invoke"),
        ends=(group_tags[1],),
        in_reasoning=True,
    )


def _hunyuan(name: str, suffix: str) -> ToolFormat:
    group = f"<tool_calls{suffix}>", f"</tool_calls{suffix}>"
    return _format(
        name,
        _pairs("\n", suffix, f"<tool_sep{suffix}>"),
        f"<tool_call{suffix}>{{name}}<tool_sep{suffix}>\n",
        f"</tool_call{suffix}>",
        (f"{group[0]}\n", f"\n{group[1]}"),
        triggers=(group[0], f"<tool_call{suffix}>"),
        ends=(group[1],),
    )


def _group(name: str, prefix: str, group: str) -> ToolFormat:
    return _format(
        name,
        _invocations(prefix),
        f'<{prefix}invoke name="{{name}}">\n',
        f"</{prefix}invoke>",
        (f"<{group}>\n", f"\n</{group}>"),
        triggers=(f"<{group}>", f"<{prefix}invoke"),
        ends=(f"</{group}>",),
    )


_MINICPM = Elements(
    call="<function",
    name_ends=(">",),
    key="<param",
    key_end=">",
    value_end="</param>",
    call_end="</function>",
    begin='<param name="{key}">',
    separator="",
    trimmed=True,
    cdata=True,
)

_KIMI = Elements(
    call="<|open|>call",
    name_ends=("<|sep|>",),
    key="<|open|>argument",
    key_end="<|sep|>",
    value_end="<|close|>argument<|sep|>",
    call_end="<|close|>call<|sep|>",
    begin='<|open|>argument key="{key}" type="{type}"<|sep|>',
    text_sign='type="string"',
    separator="",
)
KIMI_TOKENS = ("<|open|>", "<|close|>", "<|sep|>")

ATEM = _group("onyx", "atem:", "atem:function_calls")

TOOLS = (
    _format(
        "qwen3_coder",
        _functions("\n"),
        "<tool_call>\n<function={name}>\n",
        "</function>\n</tool_call>",
        aliases=("mimo", "qwen3_xml", "qwen3coder", "step3p5"),
        triggers=("<tool_call>", "<function="),
        ends=("</tool_call>",),
        in_reasoning=True,
    ),
    _format(
        "seed_oss",
        _functions(""),
        "<seed:tool_call>\n<function={name}>\n",
        "</function>\n</seed:tool_call>",
        triggers=("<seed:tool_call>", "<function="),
        ends=("</seed:tool_call>",),
    ),
    _format(
        "glm45",
        _pairs("\n"),
        "<tool_call>{name}\n",
        "</tool_call>",
        aliases=("glm4_moe",),
        triggers=("<tool_call>",),
    ),
    _format("glm47", _pairs(""), "<tool_call>{name}", "</tool_call>", triggers=("<tool_call>",), separator=""),
    _group("minimax_m2", "", "minimax:tool_call"),
    _dsml("deepseek_v32", "function_calls"),
    _dsml("deepseek_v4", "tool_calls"),
    _format("minicpm5", _MINICPM, '<function name="{name}">', "</function>", triggers=("<function",)),
    _hunyuan("hunyuan_v3", ":opensource"),
    _hunyuan("hunyuan", ""),
    _format(
        "kimi_k3",
        _KIMI,
        '<|open|>call tool="{name}" index="{n}"<|sep|>',
        "<|close|>call<|sep|>",
        ("<|open|>tools<|sep|>", "<|close|>tools<|sep|>"),
        triggers=("<|open|>tools<|sep|>", "<|open|>call"),
        ends=("<|close|>tools<|sep|>",),
        separator="",
        special_tokens=KIMI_TOKENS,
        in_reasoning=True,
    ),
)
