"""A prompt process that does what the first message says: hang, crash, crash once, die, or answer with its length.

``path`` in its options is a folder, where "crash once" leaves a note that it has happened. The file
"interruptions" in it says how many replacements of a crashed process die while they load.
"""

import os
import sys
import threading
from pathlib import Path

import msgspec

from worker.prompt.interface import Prepare, Prepared, PromptOptions, PromptReady, PromptReply
from worker.subprocess.channel import ChildChannel
from worker.subprocess.messages import LoadFailed


def main() -> None:
    options = msgspec.json.decode(sys.argv[1], type=PromptOptions)
    channel: ChildChannel[Prepare, PromptReply] = ChildChannel.inherited(msgspec.msgpack.Decoder(Prepare))
    note = Path(options.path) / "crashed"
    if options.context_length == 1:
        channel.send(LoadFailed("no such tokenizer"))
        return
    if options.context_length == 2:
        return
    interruptions = Path(options.path) / "interruptions"
    if note.exists() and interruptions.exists() and (left := int(interruptions.read_text())):
        interruptions.write_text(str(left - 1))
        os._exit(3)
    channel.send(PromptReady(options.context_length))
    while True:
        for message in channel.receive(None):
            text = message.request.messages[0].content
            if text == "hang":
                threading.Event().wait()
            if text == "crash" or (text == "crash once" and not note.exists()):
                note.touch()
                os._exit(3)
            channel.send(Prepared(message.number, tuple(range(len(text)))))


main()
