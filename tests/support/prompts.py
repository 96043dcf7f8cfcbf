"""A prompt process that the test answers for."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import cast

from shared.protocol.errors import RequestRefused
from shared.protocol.request import ChatRequest
from worker.images.interface import DecodedImage
from worker.prompt.interface import Prepared, PromptRefused, PromptReply
from worker.prompt.prefetch import PromptPrefetcher
from worker.prompt.process import PromptProcess


class Maker:
    """A prompt process whose calls are recorded, and answered by the test."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers: list[asyncio.Future[PromptReply]] = []

    def call(self, request: ChatRequest) -> asyncio.Future[PromptReply]:
        answer: asyncio.Future[PromptReply] = asyncio.get_running_loop().create_future()
        self.asked.append(request.messages[0].content)
        self.answers.append(answer)
        return answer

    async def prepared(self, asked: Awaitable[PromptReply]) -> Prepared:
        answer = await asked
        if isinstance(answer, PromptRefused):
            raise RequestRefused(answer.problem)
        assert isinstance(answer, Prepared)
        return answer


def prompts_of(maker: Maker, **options: float) -> PromptPrefetcher:
    return PromptPrefetcher(cast(PromptProcess, maker), no_images, **options)


async def no_images(request: ChatRequest) -> Sequence[DecodedImage]:
    """Images of requests that have none."""
    return ()
