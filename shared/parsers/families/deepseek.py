"""DeepSeek: name, separator token and arguments, each call between begin and end tokens.

V3 and R1 write the type ``function``, the separator, the name, and the arguments in a JSON code block.
V3.1 writes the name, the separator and the bare arguments.
"""

import re
from functools import partial

from shared.parsers.format import CallShape, ToolFormat
from shared.parsers.named_calls import read_named_calls

_CALLS = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")  # noqa: RUF001 (the tokens have a full-width bar)
_BEGIN, _END = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"  # noqa: RUF001
_SEPARATOR = "<｜tool▁sep｜>"  # noqa: RUF001


def _format(name: str, before: str, name_end: str, end: str, separator: str = "") -> ToolFormat:
    """``before`` is between the beginning and the name."""
    return ToolFormat(
        name=name,
        triggers=(_CALLS[0], _BEGIN),
        ends=(_CALLS[1],),
        special_tokens=(*_CALLS, _BEGIN, _END, _SEPARATOR),
        read=partial(
            read_named_calls,
            call=_BEGIN,
            name_end=name_end.strip("\n"),
            header=re.compile(rf"\s*(?:{re.escape(before)})?(?P<name>\S+)\s*"),
        ),
        shape=CallShape(
            trigger=_BEGIN,
            begin=f"{_BEGIN}{before}{{name}}{name_end}",
            end=end,
            separator=separator,
            group=_CALLS,
        ),
    )


TOOLS = (
    _format("deepseek_v3", f"function{_SEPARATOR}", "\n```json\n", f"\n```{_END}", "\n"),
    _format("deepseek_v31", "", _SEPARATOR, _END),
)
