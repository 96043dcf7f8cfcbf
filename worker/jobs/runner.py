"""Runs one claimed job from its payload to its terminal event."""

import logging
import secrets
import time
from collections.abc import Sequence as Ordered
from contextlib import ExitStack
from dataclasses import dataclass

import msgspec

from shared.parsers import Markup, markup_of
from shared.protocol.errors import ContextExcess, Problem, ProblemKind, RequestRefused, context_exceeded, refuse
from shared.protocol.events import CANCELLED, Finished, Started, Tokenized, encode_event
from shared.protocol.queue import Claim, JobQueue
from shared.protocol.request import Job, QueuedJob, Sampling, fill_in
from shared.tracing import Tracing
from worker.engine.handle import CurrentEngine
from worker.engine.protocol import EngineInfo, Sequence
from worker.grammar.service import GrammarProcess
from worker.jobs.active_jobs import ActiveJobs
from worker.jobs.attempt import Attempt, StopCause
from worker.jobs.attempt_recorder import record
from worker.jobs.gates import Gate
from worker.jobs.gates.quarantine import MAX_CRASHES
from worker.jobs.payload import (
    UNREADABLE_JOB,
    check_protocol,
    full_request,
    move_to_dead_letters,
    read_history,
    read_payload,
    summary,
)
from worker.jobs.publisher import Publisher
from worker.jobs.request_cache import RequestCache
from worker.jobs.thinking import reasoning_limit
from worker.processes.call_process import ServiceUnavailable
from worker.prompt.messages import Prepared

logger = logging.getLogger(__name__)

_SEED_RANGE = 2**64

MAX_LOST_WORKERS = 5
"""Number of workers that have disappeared with a job after which it is refused."""


@dataclass(slots=True, eq=False)
class JobRunner:
    """Runs claimed jobs in the current engine, each in its own task."""

    worker: str
    """The id of this worker."""
    queue: JobQueue
    jobs: ActiveJobs
    engine: CurrentEngine
    publisher: Publisher
    requests: RequestCache
    grammars: GrammarProcess | None
    """Without it, every grammar is accepted."""
    gates: Ordered[Gate]
    """What an attempt enters, in this order."""
    tracing: Tracing
    log_poison: bool
    """Log refused jobs in full, including their prompts."""
    sampling: Sampling
    """The model's defaults."""

    async def run(self, claim: Claim) -> None:
        """Run one job to its end. A failure is published as its terminal event.

        A job that is stopped (:class:`~worker.jobs.active_jobs.ActiveJobs`) ends with :class:`asyncio.CancelledError`.
        """
        queued: QueuedJob | None = None
        try:
            queued = read_payload(claim)
            check_protocol(queued)
        except UNREADABLE_JOB as error:
            reply_to = queued.reply_to if queued is not None else ""
            await move_to_dead_letters(self.queue, self.worker, claim, error, reply_to=reply_to)
            return
        with self.jobs.registered(claim, queued) as attempt:
            try:
                await self._run(attempt)
            except RequestRefused as refusal:
                self.publisher.end(attempt, attempt.failure(refusal.problem))
            except ServiceUnavailable:
                # This worker is about to exit. Its lease expires, and another worker continues the job.
                await attempt.ended.wait()
            except Exception:
                logger.exception("job %s failed in the worker", claim.job)
                problem = Problem(kind=ProblemKind.INTERNAL, message="The worker failed while it served this request.")
                self.publisher.end(attempt, attempt.failure(problem))
            finally:
                self._clean_up(attempt)
                record(self.tracing, attempt)

    async def _run(self, attempt: Attempt) -> None:
        claim = attempt.claim
        if self.jobs.pop_early_cancellation(claim.job):
            self.publisher.end(attempt, CANCELLED)
            return
        try:
            job = await self.requests.complete(attempt.queued)
        except UNREADABLE_JOB as error:
            attempt.terminal_event = await move_to_dead_letters(
                self.queue, self.worker, claim, error, reply_to=attempt.queued.reply_to
            )
            return
        attempt.request = job.request
        self._refuse_poison(job, claim)
        if claim.foreign:
            raise refuse(
                ProblemKind.LOST,
                "The response can't be continued: its worker is gone, and all workers that now serve the model have "
                "another vocabulary or chat template. Please send the request again.",
            )
        prepared = await self.requests.prompt(job)
        if job.request.tokenization is not None:
            await self._report_tokens(attempt, prepared)
            return
        engine = await self.engine.wait()
        if prepared.counted is not None and not engine.info.adjusts_logits:
            prepared = msgspec.structs.replace(prepared, plan=prepared.counted)
        plan = prepared.plan
        if plan.constraint is not None and self.grammars is not None:
            await self.grammars.check(plan.constraint, plan.param, job.tenant)
        generated, scored = read_history(claim)
        attempt.engine = engine.process
        started = attempt.started_event = self._started(job, prepared, engine.info, claim)
        markup = markup_of(job.request, started)
        attempt.sequence = self._sequence(attempt.number, job, prepared, markup, generated, engine.info, scored=scored)
        if generated or claim.lost_workers or claim.crashes:
            logger.info("job %s continues here after %d tokens", job.id, len(generated))
        await self._generate(attempt)

    async def _generate(self, attempt: Attempt) -> None:
        """Pass the gates, and have the engine generate the sequence to its end."""
        with ExitStack() as held:
            for gate in self.gates:
                hold = await gate.enter(attempt)
                held.callback(hold.leave)
                attempt.holds.append(hold)
            # If its engine has ended meanwhile, the attempt is released while it waits for the next one.
            process = (await self.engine.wait()).process
            attempt.added_at = time.monotonic()
            process.add(attempt.sequence)
            await attempt.ended.wait()

    def _clean_up(self, attempt: Attempt) -> None:
        """Remove an attempt that was stopped from the engine.

        A job that was cancelled ends. Otherwise another attempt continues it, and what was not published is dropped.
        """
        match attempt.stopped:
            case StopCause.CANCELLED:
                self.publisher.end(attempt, CANCELLED)
            case StopCause.ABANDONED:
                self.publisher.drop(attempt.lease)
            case None:
                return
        if attempt.added_at and attempt.engine is not None:
            attempt.engine.cancel(attempt.number)

    async def _report_tokens(self, attempt: Attempt, prepared: Prepared) -> None:
        """Respond to a tokenization request: publish the prompt's tokens."""
        engine = (await self.engine.wait()).info
        started = Started(worker=self.worker, prompt_tokens=0, fingerprint=engine.fingerprint)
        context = min(engine.context_length, engine.cache_tokens)
        tokenized = Tokenized(prepared.tokens, prepared.strings, prepared.text, context, prepared.image_tokens)
        for event in (started, tokenized):
            self.publisher.add(attempt.lease, encode_event(event))
        self.publisher.end(attempt, Finished(0, "stop"))

    def _refuse_poison(self, job: Job, claim: Claim) -> None:
        """Raise :class:`RequestRefused` for a job that keeps crashing engines or losing workers."""
        if claim.crashes < MAX_CRASHES and claim.lost_workers < MAX_LOST_WORKERS:
            return
        logger.error(
            "poison request %s is refused after %d engine crashes and %d lost workers (%s)",
            job.id,
            claim.crashes,
            claim.lost_workers,
            full_request(job) if self.log_poison else summary(job),
        )
        lost = f"{claim.crashes} engines" if claim.crashes else f"{claim.lost_workers} workers"
        raise refuse(ProblemKind.POISON, f"{lost} failed while they ran this request. It will not be tried again.")

    def _sequence(
        self,
        number: int,
        job: Job,
        prepared: Prepared,
        markup: Markup | None,
        generated: tuple[int, ...],
        engine: EngineInfo,
        *,
        scored: bool,
    ) -> Sequence:
        """Return what the engine gets. ``scored``: whether the prompt's log probabilities were published."""
        plan = prepared.plan
        sampling = self._resolve_sampling(job, len(prepared.tokens), engine)
        # A chat reports the log probabilities of its prompt for its first choice only.
        if scored or (job.choice and not job.request.prompts):
            sampling = msgspec.structs.replace(sampling, prompt_scoring=None)
        return Sequence(
            number=number,
            prompt=prepared.tokens,
            images=prepared.images,
            generated=generated,
            sampling=sampling,
            constraint=plan.constraint,
            shown_tokens=plan.shown_tokens,
            reasoning_limit=reasoning_limit(sampling, plan, engine),
            triggers=plan.triggers,
            markup=markup if sampling.stop else None,
            bad_word_tokens=prepared.bad_word_tokens,
            length_limits=plan.length_limits,
            alternatives=job.request.n,
        )

    def _started(self, job: Job, prepared: Prepared, engine: EngineInfo, claim: Claim) -> Started:
        return Started(
            worker=self.worker,
            prompt_tokens=len(prepared.tokens),
            fingerprint=engine.fingerprint,
            tools=prepared.plan.tools,
            reasoning=prepared.plan.reasoning,
            in_reasoning=prepared.plan.in_reasoning,
            prompt_token_ids=prepared.tokens if job.request.return_token_ids else (),
            attempt=claim.attempt,
            cause=claim.cause,
        )

    def _resolve_sampling(self, job: Job, prompt_tokens: int, engine: EngineInfo) -> Sampling:
        """Return the job's sampling with defaults, seed and ``max_tokens`` filled in.

        Raises :class:`RequestRefused` when the prompt leaves no room for an output.
        """
        request = job.request
        own = self.sampling
        if request.sampling.beams > 1:
            # The pipeline has no beam search with penalties, so those of the model do not apply.
            own = msgspec.structs.replace(own, frequency_penalty=None, presence_penalty=None, repetition_penalty=None)
        if own.max_tokens is None and (own.max_length or 0) > prompt_tokens:
            own = msgspec.structs.replace(own, max_tokens=(own.max_length or 0) - prompt_tokens)
        sampling = fill_in(fill_in(request.sampling, own), request.defaults)
        context = min(engine.context_length, engine.cache_tokens)
        room = context - prompt_tokens
        if room < 1:
            excess = ContextExcess(prompt=prompt_tokens, limit=context)
            raise context_exceeded(excess, param="messages" if request.prompt is None else "prompt")
        seed = secrets.randbits(32) if sampling.seed is None else sampling.seed + job.choice
        return msgspec.structs.replace(
            sampling,
            max_tokens=room if sampling.max_tokens is None else min(room, sampling.max_tokens),
            seed=seed % _SEED_RANGE,
        )
