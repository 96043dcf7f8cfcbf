"""An image process that does what a file says: hang or crash. It decodes all others to one pixel."""

import os
import threading

import msgspec

from worker.images.interface import DecodedImage, DecodeImage, ImageDecoded, ImageReply, ImagesReady
from worker.subprocess.channel import ChildChannel


def reply(message: DecodeImage) -> ImageReply:
    if message.file == b"hang":
        threading.Event().wait()
    if message.file == b"crash":
        os._exit(3)
    return ImageDecoded(message.number, DecodedImage(1, 1, b"rgb"))


channel: ChildChannel[DecodeImage, ImageReply] = ChildChannel.inherited(msgspec.msgpack.Decoder(DecodeImage))
channel.send(ImagesReady())
channel.serve(reply)
