"""The tokens that an ended request is charged in its key's rate limit and in its tenant's fair-queueing share."""

import asyncio

import msgspec

from api.chat.selection import jobs_per_prompt
from api.chat.stream import ResponseStream
from api.chat.usage_recorder import UsageRecorder
from shared.protocol.cost import prompt_cost
from shared.protocol.errors import ProblemKind
from shared.protocol.request import ChatRequest


async def tokens_to_charge(request: ChatRequest, recorder: UsageRecorder, stream: ResponseStream | None) -> int:
    """Return the tokens to charge for ``request``, whose ``stream`` is closed; it has none if it was not queued.

    A worker reports the prompt tokens with the first event. If the client disconnects or the request times out before
    that, the estimate is charged for each prompt that a worker has claimed; otherwise computed prompts would be free.
    Waits for the cancellation of the jobs, which returns the claimed ones.
    """
    used = recorder.prompt_tokens + recorder.completion_tokens
    if stream is None or stream.cancellation is None:
        return used
    if stream.problem is not None and stream.problem.kind is not ProblemKind.TIMEOUT:
        return used  # not caused by the client
    await asyncio.wait([stream.cancellation])
    if stream.cancellation.cancelled() or stream.cancellation.exception():
        return used
    claimed = stream.cancellation.result()
    choices = jobs_per_prompt(request)
    prompts = {index // choices for index, job in enumerate(stream.jobs) if job in claimed}
    return used + sum(_prompt_cost(request, prompt) for prompt in prompts.difference(recorder.prompts))


def _prompt_cost(request: ChatRequest, prompt: int) -> int:
    if request.prompts:
        request = msgspec.structs.replace(request, prompts=(request.prompts[prompt],))
    return prompt_cost(request)
