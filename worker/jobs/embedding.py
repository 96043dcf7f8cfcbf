"""Runs jobs that return vectors of texts, or scores of pairs: tokens, gates, engine."""

from collections.abc import Sequence
from dataclasses import dataclass

from shared.protocol.events import Started
from shared.protocol.request import Embed, Job, Sampling
from worker.engine.handle import CurrentEngine
from worker.engine.protocol import EngineSequence
from worker.jobs.attempt import Attempt
from worker.jobs.gates import Gate
from worker.jobs.generation import compute
from worker.jobs.request_cache import RequestCache


@dataclass(slots=True, eq=False)
class EmbeddingRunner:
    """Has the current engine compute vectors or scores. Nothing of an earlier attempt is used."""

    worker: str
    """The id of this worker."""
    engine: CurrentEngine
    requests: RequestCache
    gates: Sequence[Gate]
    """What an attempt enters, in this order."""

    async def run(self, attempt: Attempt, job: Job) -> None:
        """Compute to the job's end. Raises :class:`RequestRefused` and :class:`ServiceUnavailable`."""
        assert isinstance(job.request.work, Embed)
        prepared, claim = await self.requests.prompt(job), attempt.claim
        engine = await self.engine.wait()
        attempt.engine = engine.process
        attempt.started_event = Started(
            worker=self.worker,
            prompt_tokens=len(prepared.tokens),
            fingerprint=engine.info.fingerprint,
            attempt=claim.attempt,
            cause=claim.cause,
        )
        attempt.sequence = EngineSequence(
            number=attempt.number,
            prompt=prepared.tokens,
            sampling=Sampling(),
            lengths=prepared.lengths,
            firsts=prepared.firsts,
            items=prepared.items,
            dimensions=job.request.work.dimensions,
        )
        await compute(attempt, self.engine, self.gates)
