"""The grammar process: ``python -m worker.grammar.child '<GrammarOptions as JSON>'``, started by its supervisor.

One grammar after the other. One that takes too long, or crashes the compiler, ends with the process.
"""

import sys

import msgspec

from worker.grammar.interface import Answer, Compile, Compiled, Faulty, GrammarOptions, GrammarsFailed, GrammarsReady
from worker.grammar.scratch import GrammarError, ScratchPipeline
from worker.ipc import ChildChannel


def main() -> int:
    """Serve until the parent closes the channel. Returns the exit code."""
    options = msgspec.json.decode(sys.argv[1], type=GrammarOptions)
    channel: ChildChannel[Compile, Answer] = ChildChannel.inherited(msgspec.msgpack.Decoder(Compile))
    try:
        pipeline = ScratchPipeline(options.path)
    except Exception as error:
        channel.send(GrammarsFailed(f"The tokenizer of {options.path} can't be loaded: {error}"))
        return 1
    channel.send(GrammarsReady())
    while True:
        try:
            messages = channel.receive(None)
        except EOFError:
            return 0
        for message in messages:
            try:
                channel.send(Compiled(message.number, pipeline.compile(message.constraint)))
            except GrammarError as error:
                channel.send(Faulty(message.number, str(error)))


if __name__ == "__main__":
    sys.exit(main())
