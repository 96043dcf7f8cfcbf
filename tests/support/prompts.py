"""A prompt process that the test answers for."""

import asyncio
from collections.abc import Sequence
from typing import cast

from shared.protocol.request import ChatRequest, Job
from worker.images.interface import DecodedImage
from worker.prompt.interface import Prepared
from worker.prompt.prefetch import PromptPrefetcher
from worker.prompt.process import PromptProcess


class Maker:
    """A prompt process whose calls are recorded, and answered by the test."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers: list[asyncio.Future[Prepared]] = []

    def call(self, request: ChatRequest, tenant: str) -> asyncio.Future[Prepared]:
        answer: asyncio.Future[Prepared] = asyncio.get_running_loop().create_future()
        self.asked.append(request.messages[0].content)
        self.answers.append(answer)
        return answer


def prompts_of(maker: Maker, **options: float) -> PromptPrefetcher:
    return PromptPrefetcher(cast(PromptProcess, maker), no_images, **options)


async def no_images(job: Job) -> Sequence[DecodedImage]:
    """Images of requests that have none."""
    return ()
