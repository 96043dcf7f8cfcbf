"""Messages between the supervisor and the grammar process.

The grammar process compiles every new grammar before the engine does, with the same tokenizer and without the model.
In the engine, a grammar that fails or is slow would fail or stall the step of the whole batch.
"""

import msgspec

from shared.protocol.request import Constraint
from worker.subprocess.messages import LoadFailed


class GrammarOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Start-up options of the grammar process. ``path`` is the model's GGUF file or IR folder."""

    path: str


class Compile(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Request to compile a constraint and measure its cost. ``number`` identifies the reply.

    The measurement stops once the slowdown (see :class:`Compiled`) is known to exceed ``max_slowdown``.
    """

    number: int
    constraint: Constraint
    max_slowdown: float


class Compiled(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The constraint is valid.

    ``seconds`` is the compile time. ``slowdown`` is the cost of sampling a token under the constraint, as a multiple of
    the cost without one.
    """

    number: int
    seconds: float
    slowdown: float = 1.0


class InvalidGrammar(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The constraint can't be compiled. ``message`` is shown to the client."""

    number: int
    message: str


class GrammarsReady(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The process is ready: its tokenizer is loaded."""


GrammarReply = Compiled | InvalidGrammar | GrammarsReady | LoadFailed
