"""The output plan of a job: the grammar that its text is generated under, and the formats that it is parsed with."""

import msgspec

from worker.engine.protocol import LengthLimits, OutputGrammar


class Plan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the output of one job is generated and parsed.

    ``grammar`` is what the engine enforces, and ``param`` names the request field that it comes from. ``tools``,
    ``reasoning`` and ``in_reasoning`` have the same meaning as in :class:`Started`. ``shown_tokens`` are special tokens
    that are kept in the text, because they are format markers, ``reasoning_end`` the tokens that end reasoning. The
    grammar allows any text before the first of the texts ``triggers``; if empty, it applies from the start.
    ``length_limits`` are enforced by :mod:`worker.grammar.lengths` instead of the grammar.
    """

    grammar: OutputGrammar | None = None
    param: str = ""
    tools: str = ""
    reasoning: str = ""
    in_reasoning: bool = False
    shown_tokens: tuple[int, ...] = ()
    reasoning_end: tuple[int, ...] = ()
    triggers: tuple[str, ...] = ()
    length_limits: tuple[LengthLimits, ...] = ()
