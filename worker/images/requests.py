"""The images of requests, fetched and decoded."""

from collections.abc import Sequence

from shared.protocol.request import Job
from worker.images.files import RequestFiles
from worker.images.interface import DecodedImage
from worker.images.process import ImageProcess


class RequestImages:
    """The images of requests: fetched from the store, and decoded by the image process."""

    def __init__(self, files: RequestFiles, process: ImageProcess) -> None:
        self._files = files
        self._process = process

    async def load(self, job: Job) -> Sequence[DecodedImage]:
        """Return the images of the request of ``job``, in order. Raises :class:`RequestRefused`, naming an image."""
        return await self._process.decode(job, await self._files.get(job))
