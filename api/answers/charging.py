"""What an ended request is charged in tokens, against its key's rate and its share of the queue."""

import asyncio

import msgspec

from api.answers.selection import jobs_per_prompt
from api.answers.usage_recorder import UsageRecorder
from shared.protocol.cost import prompt_cost
from shared.protocol.errors import ProblemKind
from shared.protocol.request import ChatRequest


async def tokens_to_charge(request: ChatRequest, tally: UsageRecorder) -> int:
    """Return the tokens that ``request`` took.

    A worker reports a prompt's tokens with the first token of the answer. If the client leaves before that, or the
    request times out, the estimate counts for each prompt that a worker has claimed: otherwise prompts that were
    computed would cost nothing. Waits until the request's jobs are cancelled, which tells the claimed ones.
    """
    used = tally.prompt_tokens + tally.completion_tokens
    answer = tally.answer
    if answer is None or answer.cancellation is None:
        return used
    if answer.problem is not None and answer.problem.kind is not ProblemKind.TIMEOUT:
        return used  # no fault of the client's
    await asyncio.wait([answer.cancellation])
    if answer.cancellation.cancelled() or answer.cancellation.exception():
        return used
    claimed = answer.cancellation.result()
    choices = jobs_per_prompt(request)
    prompts = {index // choices for index, job in enumerate(answer.jobs) if job in claimed}
    return used + sum(_prompt_cost(request, prompt) for prompt in prompts.difference(tally.prompts))


def _prompt_cost(request: ChatRequest, prompt: int) -> int:
    if request.prompts:
        request = msgspec.structs.replace(request, prompts=(request.prompts[prompt],))
    return prompt_cost(request)
