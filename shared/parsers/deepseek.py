"""DeepSeek tool calls: name, separator token and arguments, each call between begin and end tokens.

V3 and R1 write the type ``function``, the separator, the name, and the arguments in a JSON code block.
V3.1 writes the name, the separator and the bare arguments.
"""

from shared.parsers.json_calls import stream_arguments
from shared.parsers.parts import Writer
from shared.parsers.source import NAME_LIMIT, Malformed, Script, Source, markers
from shared.protocol.formats import DEEPSEEK_CALL_BEGIN, DEEPSEEK_CALL_END, DEEPSEEK_CALLS_END, DEEPSEEK_SEPARATOR

_FENCE = "```"


def read_deepseek_calls(source: Source, writer: Writer, trigger: str) -> Script[None]:
    """Read a group of calls, or the single call that ``trigger`` opened. Raises :class:`Malformed` on invalid input."""
    if trigger != DEEPSEEK_CALL_BEGIN:
        yield from source.skip_space()
        yield from source.expect(DEEPSEEK_CALL_BEGIN)
    while True:
        yield from _call(source, writer)
        yield from source.skip_space()
        if (yield from source.match(DEEPSEEK_CALL_BEGIN)) is None:
            break
    if (yield from source.match(DEEPSEEK_CALLS_END)) is not None:
        source.commit()


def _call(source: Source, writer: Writer) -> Script[None]:
    name, _ = yield from source.until(markers(DEEPSEEK_SEPARATOR), NAME_LIMIT)
    following = yield from source.skip_space()
    if following != "{" and (yield from source.ahead((DEEPSEEK_CALL_END,))) is None:
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
    elif (yield from source.ahead((DEEPSEEK_CALL_END, _FENCE))) is not None:
        writer.open(name)
        writer.arguments("{}")
        writer.close()
    else:
        raise Malformed
    yield from source.skip_space()
    if (yield from source.match(_FENCE)) is not None:
        source.commit()
        yield from source.skip_space()
    if (yield from source.match(DEEPSEEK_CALL_END)) is not None:
        source.commit()
