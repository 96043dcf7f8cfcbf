"""Messages between the supervisor and the grammar process.

The grammar process compiles every new grammar before the engine does, with the same tokenizer and without the model.
In the engine, a grammar that fails or is slow would fail or stall the step of the whole batch.
"""

import msgspec

from shared.protocol.request import Constraint


class GrammarOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Start-up options of the grammar process. ``path`` is the model's GGUF file or IR folder."""

    path: str


class Compile(msgspec.Struct, frozen=True, array_like=True):
    """Compile a constraint and measure its cost, until the slowdown is known to exceed ``max_slowdown``."""

    constraint: Constraint
    max_slowdown: float


class Cost(msgspec.Struct, frozen=True, array_like=True):
    """CPU cost of a constraint: seconds to compile it, and the cost of a token as a multiple of that without it."""

    compile: float
    slowdown: float
