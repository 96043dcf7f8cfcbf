"""The grammar process: ``python -m worker.grammar.child '<GrammarOptions as JSON>'``, started by its supervisor.

One grammar after the other. One that takes too long, or crashes the compiler, ends with the process.
"""

import sys
from functools import partial

import msgspec

from worker.asked import LoadFailed, answer_all
from worker.grammar.interface import Answer, Compile, Compiled, Faulty, GrammarOptions, GrammarsReady
from worker.grammar.scratch import GrammarError, ScratchPipeline
from worker.ipc import ChildChannel


def main() -> int:
    """Serve until the parent closes the channel. Returns the exit code."""
    options = msgspec.json.decode(sys.argv[1], type=GrammarOptions)
    channel: ChildChannel[Compile, Answer] = ChildChannel.inherited(msgspec.msgpack.Decoder(Compile))
    try:
        pipeline = ScratchPipeline(options.path)
    except Exception as error:
        channel.send(LoadFailed(f"The tokenizer of {options.path} can't be loaded: {error}"))
        return 1
    channel.send(GrammarsReady())
    return answer_all(channel, partial(_judge, pipeline))


def _judge(pipeline: ScratchPipeline, message: Compile) -> Answer:
    try:
        cost = pipeline.measure(message.constraint)
        return Compiled(message.number, cost.compile, cost.slowdown)
    except GrammarError as error:
        return Faulty(message.number, str(error))


if __name__ == "__main__":
    sys.exit(main())
