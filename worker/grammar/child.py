"""The grammar process: ``python -m worker.grammar.child '<GrammarOptions as JSON>'``, started by the supervisor."""

import os
import sys
from collections.abc import Callable
from pkgutil import resolve_name

import msgspec

from shared.protocol.errors import ProblemKind, refuse
from worker.engine.backends import BACKENDS
from worker.engine.protocol import GrammarError
from worker.grammar.messages import Compile, GrammarCall, GrammarOptions, Profile, Profiler
from worker.processes.channel import serve

_NICENESS = 10
"""An engine on the same CPUs comes first, except while calls wait for a replacement of the process."""


def _load(options: GrammarOptions) -> Callable[[GrammarCall], float]:
    try:
        profiler: Profiler = resolve_name(BACKENDS[options.engine].grammars)(options.path)
    except Exception as error:
        raise RuntimeError(f"The tokenizer of {options.path} can't be loaded: {error}") from error

    os.nice(_NICENESS)

    def measure(call: GrammarCall) -> float:
        try:
            match call:
                case Compile(grammar):
                    return profiler.compile(grammar)
                case Profile(grammar, max_slowdown):
                    return profiler.slowdown(grammar, max_slowdown)
        except GrammarError as error:
            raise refuse(ProblemKind.INVALID, str(error)) from error

    return measure


if __name__ == "__main__":
    decoder: msgspec.msgpack.Decoder[GrammarCall] = msgspec.msgpack.Decoder(GrammarCall)
    sys.exit(serve(GrammarOptions, decoder, _load))
