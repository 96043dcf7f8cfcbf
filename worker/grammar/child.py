"""The grammar process: ``python -m worker.grammar.child '<GrammarOptions as JSON>'``, started by the supervisor."""

import os
import sys
from collections.abc import Callable

from shared.protocol.errors import ProblemKind, refuse
from worker.engine.grammar_compiler import GrammarError
from worker.grammar.interface import Compile, Cost, GrammarOptions
from worker.grammar.profiler import GrammarProfiler
from worker.subprocess.serve import serve

_NICENESS = 10
"""An engine on the same CPUs comes first."""


def _load(options: GrammarOptions) -> Callable[[Compile], Cost]:
    os.nice(_NICENESS)
    try:
        profiler = GrammarProfiler(options.path)
    except Exception as error:
        raise RuntimeError(f"The tokenizer of {options.path} can't be loaded: {error}") from error

    def measure(call: Compile) -> Cost:
        try:
            return profiler.measure(call.constraint, call.max_slowdown)
        except GrammarError as error:
            raise refuse(ProblemKind.INVALID, str(error)) from error

    return measure


if __name__ == "__main__":
    sys.exit(serve(GrammarOptions, Compile, _load))
