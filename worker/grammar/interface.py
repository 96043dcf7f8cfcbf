"""The messages between the supervisor and the grammar process.

The grammar process compiles every new grammar before the engine does, on the same tokenizer and without the model:
one that fails or takes long would do so inside the engine's step, for everybody.
"""

import msgspec

from shared.protocol.request import Constraint
from worker.worker_subprocess import LoadFailed


class GrammarOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the grammar process is started with: ``path`` is the model's GGUF file or IR folder."""

    path: str


class Compile(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Compile a constraint."""

    number: int
    constraint: Constraint


class Compiled(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """It is valid. ``seconds`` is how long compiling took, ``slowdown`` what a token costs under it.

    The unit of ``slowdown`` is the cost of choosing a token without a constraint.
    """

    number: int
    seconds: float
    slowdown: float = 1.0


class InvalidGrammar(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """It can't be compiled; the message is for the client."""

    number: int
    message: str


class GrammarsReady(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The tokenizer is loaded."""


GrammarReply = Compiled | InvalidGrammar | GrammarsReady | LoadFailed
