"""A grammar process that does what the grammar's text says: hang, crash, be slow, be costly, be at fault, or count.

``path`` in its options is a folder, where it notes each grammar that it is asked for. A folder that is not there
makes it fail to load.
"""

import os
import sys
import threading
from pathlib import Path

import msgspec

from worker.grammar.interface import Compile, Compiled, GrammarOptions, GrammarReply, GrammarsReady, InvalidGrammar
from worker.subprocess.channel import ChildChannel
from worker.subprocess.messages import LoadFailed


def main() -> None:
    options = msgspec.json.decode(sys.argv[1], type=GrammarOptions)
    channel: ChildChannel[Compile, GrammarReply] = ChildChannel.inherited(msgspec.msgpack.Decoder(Compile))
    folder = Path(options.path)
    if not folder.exists():
        channel.send(LoadFailed("no such tokenizer"))
        return
    channel.send(GrammarsReady())
    while True:
        for message in channel.receive(None):
            text = message.constraint.value
            with (folder / "asked").open("a") as notes:
                notes.write(text + "\n")
            if text == "hang":
                threading.Event().wait()
            if text == "crash":
                os._exit(3)
            if text == "fault":
                channel.send(InvalidGrammar(message.number, "There is no rule 'root'"))
            else:
                slow, costly = text == "slow", text == "costly"
                channel.send(Compiled(message.number, 2.0 if slow else 0.01, 31.0 if costly else 1.1))


main()
