"""Runs jobs that return the tokens of a prompt."""

from dataclasses import dataclass

from shared.protocol.events import Finished, Started, Tokenized, encode_event
from shared.protocol.request import Job
from worker.engine.handle import CurrentEngine
from worker.images.tokens import ImageTokens
from worker.jobs.attempt import Attempt
from worker.jobs.publisher import Publisher
from worker.jobs.request_cache import RequestCache


@dataclass(slots=True, eq=False)
class TokenizationRunner:
    """Publishes the tokens of prompts, which the prompt process makes."""

    worker: str
    """The id of this worker."""
    engine: CurrentEngine
    publisher: Publisher
    requests: RequestCache
    image_tokens: ImageTokens

    async def run(self, attempt: Attempt, job: Job) -> None:
        """Publish the tokens. Raises :class:`RequestRefused` and :class:`ServiceUnavailable`."""
        prepared = await self.requests.prompt(job)
        sizes = [(image.width, image.height) for image in prepared.images]
        of_images = self.image_tokens.of(job.request.images, sizes) if sizes else 0
        engine = (await self.engine.wait()).info
        started = Started(worker=self.worker, prompt_tokens=0, fingerprint=engine.fingerprint)
        context = min(engine.context_length, engine.cache_tokens)
        tokenized = Tokenized(prepared.tokens, prepared.strings, prepared.text, context, of_images)
        for event in (started, tokenized):
            self.publisher.add(attempt.lease, encode_event(event))
        self.publisher.end(attempt, Finished(0, "stop"))
