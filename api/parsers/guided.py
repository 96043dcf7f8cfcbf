"""Output that a grammar constrains to JSON: one call object or a list of them, and nothing else."""

from api.parsers.attempt import attempt
from api.parsers.json_calls import json_calls
from api.parsers.source import Script, Source, markers
from api.parsers.writer import Writer


def guided_script(source: Source, writer: Writer) -> Script[None]:
    """Read the whole output. A call that is truncated before its name is dropped; any other text is content."""
    yield from attempt(source, writer, json_calls(source, writer))
    yield from source.through(markers(), writer.content)
