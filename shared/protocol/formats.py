"""How a model writes calls and reasoning, in a worker's record. Apart from the registry: processes that do not use the
store import this."""

from typing import Annotated

import msgspec

NONE = "none"
"""No format, or an unknown one."""

MAX_WARNING = 500
"""Maximum number of characters of a warning."""

_Word = Annotated[str, msgspec.Meta(max_length=64)]


class ModelFormats(msgspec.Struct, frozen=True, kw_only=True):
    """How a model writes calls and reasoning, as its chat template shows when it is loaded."""

    tool_parser: _Word = NONE
    reasoning_parser: _Word = NONE
    replaced: Annotated[tuple[_Word, ...], msgspec.Meta(max_length=32)] = ()
    """What the template would refuse or lose, and is replaced (see :class:`worker.prompt.facts.TemplateFacts`)."""

    warnings: tuple[Annotated[str, msgspec.Meta(max_length=MAX_WARNING)], ...] = ()
    """What may make the model another one: keys of its file that nothing applies, and findings of the self-test."""

    def __str__(self) -> str:
        words = ", ".join(name.replace("_", " ") for name in self.replaced) or "nothing"
        return f"tool calls: {self.tool_parser}, reasoning: {self.reasoning_parser}, replaced: {words}"
