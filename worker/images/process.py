"""The supervisor's handle of the image process: images have a deadline; a hung or crashed process is replaced."""

from collections.abc import Mapping, Sequence
from itertools import count

import msgspec

from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from shared.protocol.request import ChatRequest, Image
from worker.images.interface import (
    DecodedImage,
    DecodeImage,
    ImageDecoded,
    ImageOptions,
    ImageRefused,
    ImageReply,
    ImagesReady,
)
from worker.subprocess.calls import SubprocessCrashed, SubprocessTimeout, SubprocessUnavailable, WorkerSubprocess

MODULE = "worker.images.child"


class ImageProcess:
    """Decodes images in a subprocess, one at a time, in order of arrival. It is started by the first image.

    An image that takes longer than ``deadline`` seconds of CPU time is refused and the process replaced. After a crash
    the image is tried once more.
    """

    def __init__(
        self, options: ImageOptions, *, image_pixels: int, deadline: float = 10.0, module: str = MODULE
    ) -> None:
        """``image_pixels`` is the maximum number of pixels of all images of a request for the model."""
        self._image_pixels = image_pixels
        self._deadline = deadline
        self._numbers = count(1)
        self._child: WorkerSubprocess[DecodeImage, ImageReply, ImagesReady] = WorkerSubprocess(
            module,
            options,
            msgspec.msgpack.Decoder(ImageReply),
            name="image process",
            ready=ImagesReady,
            deadline=deadline,
        )

    @property
    def pid(self) -> int | None:
        """Process id of the image process, if one was started."""
        return self._child.pid

    async def decode(self, request: ChatRequest, files: Mapping[str, bytes]) -> Sequence[DecodedImage]:
        """Return the images of ``request`` in order. ``files`` holds their files by digest.

        Raises :class:`RequestRefused`, naming the image that can't be decoded.
        """
        images = request.images
        # Vision encoders may compare all images of a request with each other, at a quadratic cost.
        pixels = max(1, self._image_pixels // len(images))
        return [await self._decode(image, files[image.digest], pixels) for image in images]

    async def stop(self) -> None:
        """End the process. Pending images are refused."""
        await self._child.stop()

    async def _decode(self, image: Image, file: bytes, pixels: int) -> DecodedImage:
        if not self._child.running:
            self._child.start()
        try:
            reply = await self._child.call(DecodeImage(next(self._numbers), image.digest, file, image.low, pixels))
        except SubprocessTimeout:
            raise _refusal(image, f"takes more than {self._deadline:g} s to decode.") from None
        except SubprocessCrashed:
            raise _refusal(image, "can't be decoded: the decoder crashed on it.") from None
        except SubprocessUnavailable as error:
            raise refuse(ProblemKind.INTERNAL, f"The worker could not decode the image: {error}.") from error
        match reply:
            case ImageDecoded(_, decoded):
                return decoded
            case ImageRefused(_, reason):
                raise _refusal(image, reason)
            case _:
                raise refuse(ProblemKind.INTERNAL, "The image process sent an unexpected reply.")


def _refusal(image: Image, reason: str) -> RequestRefused:
    return refuse(ProblemKind.INVALID, f"The image {reason}", param=image.param)
