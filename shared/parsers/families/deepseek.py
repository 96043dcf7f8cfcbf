"""DeepSeek tool calls: name, separator token and arguments, each call between begin and end tokens.

V3 and R1 write the type ``function``, the separator, the name, and the arguments in a JSON code block.
V3.1 writes the name, the separator and the bare arguments.
"""

from shared.parsers.format import CallShape, ToolFormat
from shared.parsers.json_calls import stream_arguments
from shared.parsers.offer import Offer
from shared.parsers.parts import Writer
from shared.parsers.source import NAME_LIMIT, Malformed, Script, Source, markers

CALLS_BEGIN = "<｜tool▁calls▁begin｜>"  # noqa: RUF001 (the tokens have a full-width bar)
CALLS_END = "<｜tool▁calls▁end｜>"  # noqa: RUF001
CALL_BEGIN = "<｜tool▁call▁begin｜>"  # noqa: RUF001
CALL_END = "<｜tool▁call▁end｜>"  # noqa: RUF001
SEPARATOR = "<｜tool▁sep｜>"  # noqa: RUF001
_FENCE = "```"


def read_deepseek_calls(source: Source, writer: Writer, trigger: str, form: ToolFormat, offer: Offer) -> Script[None]:
    """Read a group of calls, or the single call that ``trigger`` opened. Raises :class:`Malformed` on invalid input."""
    if trigger != CALL_BEGIN:
        yield from source.skip_space()
        yield from source.expect(CALL_BEGIN)
    while True:
        yield from _call(source, writer)
        yield from source.skip_space()
        if (yield from source.match(CALL_BEGIN)) is None:
            break
    if (yield from source.match(CALLS_END)) is not None:
        source.commit()


def _call(source: Source, writer: Writer) -> Script[None]:
    name, _ = yield from source.until(markers(SEPARATOR), NAME_LIMIT)
    following = yield from source.skip_space()
    if following != "{" and (yield from source.ahead((CALL_END,))) is None:
        name, _ = yield from source.until(markers("\n"), NAME_LIMIT)
        yield from source.skip_space()
        yield from source.expect(_FENCE + "json")
        following = yield from source.skip_space()
    name = name.strip()
    if not name:
        raise Malformed
    if following == "{":
        writer.open(name)
        yield from stream_arguments(source, writer)
    elif (yield from source.ahead((CALL_END, _FENCE))) is not None:
        writer.call(name, "{}")
    else:
        raise Malformed
    yield from source.skip_space()
    if (yield from source.match(_FENCE)) is not None:
        source.commit()
        yield from source.skip_space()
    if (yield from source.match(CALL_END)) is not None:
        source.commit()


def _format(name: str, shape: CallShape) -> ToolFormat:
    return ToolFormat(
        name=name,
        triggers=(CALLS_BEGIN, CALL_BEGIN),
        ends=(CALLS_END,),
        special_tokens=(CALLS_BEGIN, CALLS_END, CALL_BEGIN, CALL_END, SEPARATOR),
        read=read_deepseek_calls,
        shape=shape,
    )


TOOLS = (
    _format(
        "deepseek_v3",
        CallShape(
            trigger=CALL_BEGIN,
            begin=f"{CALL_BEGIN}function{SEPARATOR}{{name}}\n```json\n",
            end=f"\n```{CALL_END}",
            separator="\n",
            group=(CALLS_BEGIN, CALLS_END),
        ),
    ),
    _format(
        "deepseek_v31",
        CallShape(
            trigger=CALL_BEGIN,
            begin=f"{CALL_BEGIN}{{name}}{SEPARATOR}",
            end=CALL_END,
            group=(CALLS_BEGIN, CALLS_END),
        ),
    ),
)
