"""Directives in prompts for the simulated engine, for tests of failure and load.

A directive may appear anywhere in the prompt, in double square brackets. The last one of a kind applies.
``N`` counts the generated tokens of the whole output, from 1.

=====================  ==================================================================================
``[[tokens N]]``       the answer has N tokens, unless max_tokens is lower
``[[say TEXT]]``       the answer is TEXT (which holds no ``]]``), unless max_tokens is lower
``[[refuse]]``         the engine refuses the sequence
``[[exhaust at N]]``   the KV cache is full after N tokens
``[[crash at N]]``     the process dies after N tokens; a sequence resumed there continues
``[[crash]]``          the process dies at the sequence's first step, however often it is resumed
``[[hang at N]]``      the process never returns from the step after N tokens; resumed as for crash
=====================  ==================================================================================

Directives about loading, in place of the model's path:

=====================  ==================================================================================
``[[fail load]]``      the model can't be loaded
``[[crash load]]``     the process dies while it loads
``[[hang load]]``      loading never ends
``[[see images]]``     the model accepts images
``[[vocabulary N]]``   the words of the vocabulary are rotated by N: the same token ids are another text
=====================  ==================================================================================
"""

import re

import msgspec

_DIRECTIVE = re.compile(
    r"\[\[((?:fail|crash|hang) load|see images|vocabulary|(?:exhaust|crash|hang) at|tokens|say|refuse|crash)"
    r"(?: (.*?))?\]\]",
    re.DOTALL,
)
_COUNTED = {"tokens", "vocabulary", "exhaust at", "crash at", "hang at"}


class Directives(msgspec.Struct, frozen=True, kw_only=True):
    """The directives of one prompt; None or False if absent."""

    tokens: int | None = None
    say: str | None = None
    refuse: bool = False
    exhaust_at: int | None = None
    crash_at: int | None = None
    crash: bool = False
    hang_at: int | None = None
    fail_load: bool = False
    crash_load: bool = False
    hang_load: bool = False
    see_images: bool = False
    vocabulary: int = 0


def parse(text: str) -> Directives:
    """Return the directives in ``text``. Unknown and incomplete directives are plain text."""
    found: dict[str, int | str | bool] = {}
    for name, argument in _DIRECTIVE.findall(text):
        field = name.replace(" ", "_")
        if name in _COUNTED:
            if argument.isdecimal():
                found[field] = int(argument)
        elif name == "say":
            found[field] = argument
        elif not argument:
            found[field] = True
    return msgspec.convert(found, Directives)
