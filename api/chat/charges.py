"""Charges of tenants' tokens in fair queueing."""

import logging

from redis.exceptions import RedisError

from api.chat.charging import tokens_to_charge
from api.chat.queues import JobQueues
from api.chat.selection import jobs_per_prompt
from api.chat.stream import ResponseStream
from api.chat.usage_recorder import UsageRecorder
from shared.protocol.cost import prompt_cost, response_cost
from shared.protocol.request import ChatRequest
from shared.redis import outage
from shared.runtime.tasks import BackgroundTasks

logger = logging.getLogger(__name__)


class TenantCharges:
    """Corrects the estimate by which a request was queued."""

    def __init__(self, queues: JobQueues, tasks: BackgroundTasks) -> None:
        self._queues = queues
        self._tasks = tasks

    def charge(self, request: ChatRequest, tenant: str, recorder: UsageRecorder, stream: ResponseStream) -> None:
        """Replace the queue's estimate of the request's tokens by its usage, in the background."""
        self._tasks.run(self._charge(request, tenant, recorder, stream), "charge")

    async def _charge(self, request: ChatRequest, tenant: str, recorder: UsageRecorder, stream: ResponseStream) -> None:
        used = await tokens_to_charge(request, recorder, stream)
        choices = jobs_per_prompt(request)
        estimate = choices * (prompt_cost(request) + response_cost(request) * max(1, len(request.prompts)))
        try:
            await self._queues.of(request.model).charge(tenant, request.tier, used - estimate, job=stream.jobs[0])
        except (RedisError, OSError) as error:
            logger.log(outage.store.level, "tokens of a request of tenant %s not charged: %s", tenant, error)
