"""The supervisor's handle of the image process."""

from collections.abc import Mapping, Sequence

import msgspec

from shared.protocol.errors import Problem, ProblemKind, RequestRefused
from shared.protocol.request import Image, Job
from worker.images.messages import DecodedImage, DecodeImage, ImageOptions
from worker.processes.call_process import ServiceSpec
from worker.processes.service import Service


class ImageProcess(Service[DecodeImage, DecodedImage]):
    """Decodes the images of requests in a subprocess, which is started by the first image."""

    def __init__(
        self, options: ImageOptions, *, image_pixels: int, deadline: float = 5.0, module: str = "worker.images.child"
    ) -> None:
        """``image_pixels`` is the maximum number of pixels of all images of a request for the model. An image has
        ``deadline`` seconds of CPU time.
        """
        self._image_pixels = image_pixels
        spec = ServiceSpec(
            module=module,
            options=options,
            reply=DecodedImage,
            name="image process",
            deadline=deadline,
            on_timeout=lambda seconds: _problem(f"The image takes more than {seconds:g} s to decode."),
            on_crash=_problem("The image can't be decoded: the decoder crashed on it."),
        )
        super().__init__(spec)

    async def decode(self, job: Job, files: Mapping[str, bytes]) -> Sequence[DecodedImage]:
        """Return the images of ``job`` in order. ``files`` holds their files by digest.

        Raises :class:`RequestRefused`, naming the image that can't be decoded.
        """
        images = job.request.images
        # Vision encoders may compare all images of a request with each other, at a quadratic cost.
        pixels = max(1, self._image_pixels // len(images))
        return [await self._decode(image, files[image.digest], pixels, job.tenant) for image in images]

    async def _decode(self, image: Image, file: bytes, pixels: int, tenant: str) -> DecodedImage:
        try:
            return await self.call(DecodeImage(tenant, image.digest, file, image.low, pixels), tenant)
        except RequestRefused as refusal:
            raise RequestRefused(msgspec.structs.replace(refusal.problem, param=image.param)) from None


def _problem(message: str) -> Problem:
    return Problem(kind=ProblemKind.INVALID, message=message)
