"""The output plan of a job: the constraint that its text is generated under, and the formats that it is parsed with."""

import msgspec

from shared.protocol.request import Constraint
from worker.engine.protocol import LengthLimits


class Plan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the output of one job is generated and parsed.

    ``constraint`` is what the engine enforces: a grammar or a structural tag. ``param`` names
    the request field that it comes from. ``tools``, ``reasoning`` and ``in_reasoning`` have the same meaning as in
    :class:`Started`. ``shown_tokens`` are special tokens that are kept in the text, because they are format markers,
    ``reasoning_end`` the tokens of the text that ends reasoning.
    ``triggers`` are texts: the constraint allows any text before the first of them. If empty, the constraint applies
    from the start. ``length_limits`` are enforced by :mod:`worker.grammar.lengths` instead of the constraint.
    """

    constraint: Constraint | None = None
    param: str = ""
    tools: str = ""
    reasoning: str = ""
    in_reasoning: bool = False
    shown_tokens: tuple[int, ...] = ()
    reasoning_end: tuple[int, ...] = ()
    triggers: tuple[str, ...] = ()
    length_limits: tuple[LengthLimits, ...] = ()
