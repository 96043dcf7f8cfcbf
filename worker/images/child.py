"""The image process: ``python -m worker.images.child '<ImageOptions as JSON>'``, started by the supervisor."""

import sys
from collections.abc import Callable

import msgspec

from shared.protocol.errors import ProblemKind, refuse
from worker.images.decoder import ImageDecoder, ImageError
from worker.images.messages import DecodedImage, DecodeImage, ImageOptions
from worker.processes.channel import serve


def _load(options: ImageOptions) -> Callable[[DecodeImage], DecodedImage]:
    decoder = ImageDecoder(file_pixels=options.file_pixels)

    def decode(image: DecodeImage) -> DecodedImage:
        try:
            return decoder.decode(image.file, key=f"{image.tenant}\n{image.digest}", low=image.low, pixels=image.pixels)
        except ImageError as error:
            raise refuse(ProblemKind.INVALID, f"The image {error}") from error

    return decode


if __name__ == "__main__":
    sys.exit(serve(ImageOptions, msgspec.msgpack.Decoder(DecodeImage), _load))
