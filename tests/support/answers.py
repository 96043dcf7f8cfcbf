"""Responses as a replica has them, without a store: jobs' events go in; choices, or the bytes of streams, come out."""

from collections.abc import Sequence

from arq import ArqRedis

from api.chat import writer
from api.chat.choices import parts_of
from api.chat.exchange import ChatExchange
from api.chat.queues import JobQueues
from api.chat.stream import ResponseStream
from api.chat.usage import UsageRecorder
from api.chat.writer import stream
from api.dialects.base.interface import Choice, ResponseEncoder
from shared.protocol.events import Event
from shared.protocol.request import ChatRequest

__all__ = [
    "Answered", "ChatExchange", "ResponseStream", "UsageRecorder", "collect", "job_queues", "parts_of", "sent",
    "stream",
]  # fmt: skip


class Answered(ResponseStream):
    """A response whose jobs have published ``events``, in turns. Those that it cancels are listed."""

    def __init__(self, *events: Sequence[Event]) -> None:
        super().__init__([f"job{number}" for number in range(len(events))], "m", cancel=self._cancel_jobs)
        self.cancelled: list[str] = []
        for turn in range(max(map(len, events))):
            for choice, own in enumerate(events):
                if turn < len(own):
                    self.add(own[turn], choice, last=turn == len(own) - 1)

    def add(self, event: Event, choice: int = 0, *, last: bool = False) -> None:
        self.choices[choice].ended = last
        self.put(choice, event, last=last)

    def _cancel_jobs(self, model: str, jobs: Sequence[str]) -> None:
        self.cancelled += jobs


async def collect(answer: ResponseStream, request: ChatRequest, tally: UsageRecorder | None = None) -> list[Choice]:
    return await writer.collect(answer, request, tally or UsageRecorder())


async def sent(
    answer: ResponseStream, request: ChatRequest, encoder: ResponseEncoder, tally: UsageRecorder | None = None
) -> bytes:
    return b"".join([piece async for piece in stream(answer, request, encoder, tally or UsageRecorder())])


def job_queues(redis: ArqRedis) -> JobQueues:
    return JobQueues(redis, prefix_routing=False, lease=60)
