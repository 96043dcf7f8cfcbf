"""The image process: ``python -m worker.images.child '<ImageOptions as JSON>'``, started by the supervisor.

It is single-threaded and decodes one image at a time. The supervisor kills it when an image takes too long.
"""

import logging
import sys

import msgspec

from worker.images.decoder import ImageDecoder, ImageError
from worker.images.interface import DecodeImage, ImageDecoded, ImageOptions, ImageRefused, ImageReply, ImagesReady
from worker.subprocess.channel import ChildChannel

_log = logging.getLogger(__name__)


def main() -> int:
    """Decode images until the supervisor closes the channel. Returns the exit code."""
    options = msgspec.json.decode(sys.argv[1], type=ImageOptions)
    channel: ChildChannel[DecodeImage, ImageReply] = ChildChannel.inherited(msgspec.msgpack.Decoder(DecodeImage))
    decoder = ImageDecoder(file_pixels=options.file_pixels)
    channel.send(ImagesReady())

    def reply(message: DecodeImage) -> ImageReply:
        try:
            image = decoder.decode(message.file, digest=message.digest, low=message.low, pixels=message.pixels)
        except ImageError as error:
            return ImageRefused(message.number, str(error))
        except Exception:
            # An unexpected error in one image must not end the process.
            _log.exception("decoding an image failed")
            return ImageRefused(message.number, "could not be decoded.")
        return ImageDecoded(message.number, image)

    channel.serve(reply)
    return 0


if __name__ == "__main__":
    sys.exit(main())
