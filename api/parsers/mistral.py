"""Mistral tool calls: ``[TOOL_CALLS]`` followed by a JSON list, or by a name, ``[ARGS]`` and the arguments.

The v11 tokenizer introduced the second form. It may have an id between ``[CALL_ID]`` and ``[ARGS]``.
"""

from api.parsers.json_calls import json_calls, stream_arguments
from api.parsers.source import NAME_LIMIT, Malformed, Script, Source, markers
from api.parsers.writer import Writer

_ARGS = "[ARGS]"
_CALL_ID = "[CALL_ID]"


def read_mistral_calls(source: Source, writer: Writer, trigger: str) -> Script[None]:
    """Read what follows one ``[TOOL_CALLS]``. Raises :class:`Malformed` on invalid input."""
    if (yield from source.skip_space()) in ("[", "{") and (yield from source.ahead((_ARGS, _CALL_ID))) is None:
        yield from json_calls(source, writer)
        return
    name, stop = yield from source.until(markers(_ARGS, _CALL_ID), NAME_LIMIT)
    if stop == _CALL_ID:
        yield from source.until(markers(_ARGS), NAME_LIMIT)
    name = name.strip()
    if not name or (yield from source.skip_space()) != "{":
        raise Malformed
    writer.open(name)
    yield from stream_arguments(source, writer)
