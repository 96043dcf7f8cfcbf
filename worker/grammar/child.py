"""Entry point of the grammar process: ``python -m worker.grammar.child '<GrammarOptions as JSON>'``.

It handles one grammar at a time. The supervisor replaces it when a grammar takes too long or crashes the compiler.
"""

import os
import sys
from functools import partial

import msgspec

from worker.engine.grammar_compiler import GrammarError
from worker.grammar.interface import Compile, Compiled, GrammarOptions, GrammarReply, GrammarsReady, InvalidGrammar
from worker.grammar.profiler import GrammarProfiler
from worker.subprocess.channel import ChildChannel
from worker.subprocess.messages import LoadFailed

_NICENESS = 10
"""An engine on the same CPUs comes first."""


def main() -> int:
    """Serve requests until the parent closes the channel; return the exit code."""
    os.nice(_NICENESS)
    options = msgspec.json.decode(sys.argv[1], type=GrammarOptions)
    channel: ChildChannel[Compile, GrammarReply] = ChildChannel.inherited(msgspec.msgpack.Decoder(Compile))
    try:
        profiler = GrammarProfiler(options.path)
    except Exception as error:
        channel.send(LoadFailed(f"The tokenizer of {options.path} can't be loaded: {error}"))
        return 1
    channel.send(GrammarsReady())
    channel.serve(partial(_evaluate, profiler))
    return 0


def _evaluate(profiler: GrammarProfiler, message: Compile) -> GrammarReply:
    try:
        cost = profiler.measure(message.constraint, message.max_slowdown)
        return Compiled(message.number, cost.compile, cost.slowdown)
    except GrammarError as error:
        return InvalidGrammar(message.number, str(error))


if __name__ == "__main__":
    sys.exit(main())
