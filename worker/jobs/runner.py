"""Runs one claimed job from its prompt to its terminal event."""

import logging
import secrets
import time
from collections.abc import Awaitable, Callable

import msgspec

from shared.protocol.defaults import fill_in
from shared.protocol.errors import ContextExcess, Problem, ProblemKind, RequestRefused, context_exceeded, refuse
from shared.protocol.events import CANCELLED, Event, Finished, PromptLogprobs, Started, Tokenized, encode_event
from shared.protocol.queue import Claim
from shared.protocol.request import Constraint, Job, Sampling
from shared.redis import keys
from shared.redis.records import UNREADABLE, report_unreadable
from worker.engine.handle import CurrentEngine
from worker.engine.protocol import EngineInfo, Sequence
from worker.jobs.active_jobs import ActiveJob, ActiveJobs, StopCause
from worker.jobs.attempt_recorder import AttemptRecorder
from worker.jobs.poison import full_request, summary
from worker.jobs.preemption import Preemption
from worker.jobs.prefix_gate import PrefixGate
from worker.jobs.publisher import Publisher
from worker.jobs.quarantine import MAX_CRASHES, Quarantine
from worker.jobs.request_cache import RequestCache
from worker.jobs.resume import generated_tokens
from worker.processes.call_process import ServiceUnavailable
from worker.prompt.messages import Prepared

logger = logging.getLogger(__name__)

_SEED_RANGE = 2**64

CheckGrammar = Callable[[Constraint, str, str], Awaitable[None]]
"""Raises :class:`RequestRefused`, naming the request's field, unless a tenant's constraint is safe for the engine."""


class JobRunner:
    """Runs claimed jobs in the current engine, each in its own task."""

    def __init__(
        self,
        worker: str,
        jobs: ActiveJobs,
        engine: CurrentEngine,
        publisher: Publisher,
        requests: RequestCache,
        check_grammar: CheckGrammar,
        attempts: AttemptRecorder,
        *,
        preemption: Preemption,
        prefix_gate: PrefixGate,
        quarantine: Quarantine,
        max_lost_workers: int,
        log_poison: bool,
        sampling: Sampling,
    ) -> None:
        """``worker`` is this worker's id.

        A job is refused once ``max_lost_workers`` workers have disappeared while they held it. ``log_poison`` logs
        refused jobs in full, including their prompts. ``sampling`` holds the model's defaults that are not in its
        files.
        """
        self._worker = worker
        self._jobs = jobs
        self._engine = engine
        self._publisher = publisher
        self._requests = requests
        self._check_grammar = check_grammar
        self._attempts = attempts
        self._preemption = preemption
        self._prefix_gate = prefix_gate
        self._quarantine = quarantine
        self._max_lost_workers = max_lost_workers
        self._log_poison = log_poison
        self._sampling = sampling

    async def run(self, claim: Claim, job: Job) -> None:
        """Run one job to its end. A failure is published as its terminal event.

        A job that is stopped (:class:`~worker.jobs.active_jobs.ActiveJobs`) ends with :class:`asyncio.CancelledError`.
        """
        with self._jobs.running(claim, job) as active:
            try:
                await self._run(active, claim)
            except RequestRefused as refusal:
                self._end(active, active.failure(refusal.problem))
            except ServiceUnavailable:
                # This worker is about to exit. Its lease expires, and another worker continues the job.
                await active.ended.wait()
            except Exception:
                logger.exception("request %s failed in the worker", job.id)
                problem = Problem(kind=ProblemKind.INTERNAL, message="The worker failed while it served this request.")
                self._end(active, active.failure(problem))
            finally:
                self._release(active)
                self._attempts.record(active, claim)

    async def _run(self, active: ActiveJob, claim: Claim) -> None:
        job = active.job
        if self._jobs.pop_early_cancellation(job.id):
            self._publisher.end_soon(active.lease, CANCELLED)
            return
        self._refuse_poison(job, claim)
        if claim.foreign:
            raise refuse(
                ProblemKind.LOST,
                "The response can't be continued: its worker is gone, and all workers that now serve the model have "
                "another vocabulary or chat template. Please send the request again.",
            )
        prepared = await self._requests.prompt(job)
        if job.request.tokenization is not None:
            await self._report_tokens(active, prepared)
            return
        if prepared.plan.constraint is not None:
            await self._check_grammar(prepared.plan.constraint, prepared.plan.param, job.tenant)
        generated, scored = _read_history(claim)
        active.resumed = len(generated)
        if self._quarantine.is_suspect(claim.crashes, claim.lost_workers):
            await self._quarantine.enter(job.id, len(generated))
            active.quarantined = True
        scores = not scored and _scores_prompt(job)
        # A prompt whose log probabilities are requested is computed without the prefix cache.
        is_batch_line = job.request.tier == "batch"
        await self._prefix_gate.acquire(active.number, () if scores else prepared.tokens, line=is_batch_line)
        if is_batch_line:
            await self._preemption.wait_until_resumed()
        engine = await self._engine.wait()
        if generated or claim.lost_workers or claim.crashes:
            logger.info("request %s continues here after %d tokens", job.id, len(generated))
        sequence = self._sequence(active, prepared, generated, engine.info)
        if not scores:
            sampling = msgspec.structs.replace(sequence.sampling, prompt_scoring=None)
            sequence = msgspec.structs.replace(sequence, sampling=sampling)
        active.started_event = self._started(job, prepared, engine.info, claim)
        active.engine = engine.process
        active.added_at = time.monotonic()
        if is_batch_line:
            active.preemptible = _is_preemptible(active, sequence.sampling)
        else:
            self._preemption.preempt_for(active)
        engine.process.add(sequence)
        await active.ended.wait()

    async def _report_tokens(self, active: ActiveJob, prepared: Prepared) -> None:
        """Answer a tokenization request: publish the prompt's tokens."""
        engine = (await self._engine.wait()).info
        started = Started(worker=self._worker, prompt_tokens=0, fingerprint=engine.fingerprint)
        context = min(engine.context_length, engine.cache_tokens)
        tokenized = Tokenized(prepared.tokens, prepared.strings, prepared.text, context)
        for event in (started, tokenized):
            self._publisher.add(active.lease, encode_event(event))
        self._end(active, Finished(0, "stop"))

    def _end(self, active: ActiveJob, event: Event) -> None:
        """Publish the terminal event of a job that is not in the engine."""
        active.terminal_event = event
        self._publisher.end_soon(active.lease, event)

    def _refuse_poison(self, job: Job, claim: Claim) -> None:
        """Raise :class:`RequestRefused` for a job that keeps crashing engines or losing workers."""
        if claim.crashes < MAX_CRASHES and claim.lost_workers < self._max_lost_workers:
            return
        logger.error(
            "poison request %s is refused after %d engine crashes and %d lost workers (%s)",
            job.id,
            claim.crashes,
            claim.lost_workers,
            full_request(job) if self._log_poison else summary(job),
        )
        lost = f"{claim.crashes} engines" if claim.crashes else f"{claim.lost_workers} workers"
        raise refuse(ProblemKind.POISON, f"{lost} failed while they ran this request. It will not be tried again.")

    def _sequence(
        self, active: ActiveJob, prepared: Prepared, generated: tuple[int, ...], engine: EngineInfo
    ) -> Sequence:
        plan = prepared.plan
        return Sequence(
            number=active.number,
            prompt=prepared.tokens,
            images=prepared.images,
            generated=generated,
            sampling=self._resolve_sampling(active.job, len(prepared.tokens), engine),
            constraint=plan.constraint,
            shown_tokens=plan.shown_tokens,
            triggers=plan.triggers,
            bad_word_tokens=prepared.bad_word_tokens,
            length_limits=plan.length_limits,
            alternatives=active.job.request.n,
        )

    def _started(self, job: Job, prepared: Prepared, engine: EngineInfo, claim: Claim) -> Started:
        return Started(
            worker=self._worker,
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
        sampling = fill_in(fill_in(request.sampling, self._sampling), request.defaults, engine.default_fields)
        context = min(engine.context_length, engine.cache_tokens)
        room = context - prompt_tokens
        if room < 1:
            message = (
                f"This worker can hold {context} tokens of prompt and answer together, "
                f"but your messages resulted in {prompt_tokens} tokens. Please reduce their length."
            )
            excess = ContextExcess(prompt=prompt_tokens, completion=sampling.max_tokens or 1, limit=context)
            raise RequestRefused(context_exceeded(message, excess, param="messages"))
        seed = secrets.randbits(32) if sampling.seed is None else sampling.seed + job.choice
        return msgspec.structs.replace(
            sampling,
            max_tokens=room if sampling.max_tokens is None else min(room, sampling.max_tokens),
            seed=seed % _SEED_RANGE,
        )

    def _release(self, active: ActiveJob) -> None:
        """Release what the job holds. If it was stopped, remove it from the engine and drop its pending events."""
        self._prefix_gate.release(active.number, computed=False)
        self._preemption.release(active)
        if active.quarantined:
            self._quarantine.leave(active.job.id)
        match active.stopped:
            case None:
                return
            case StopCause.CANCELLED:
                if active.terminal_event is None:
                    self._publisher.end_soon(active.lease, CANCELLED)
            case StopCause.ABANDONED:
                self._publisher.drop(active.lease)
        if active.engine is not None:
            active.engine.cancel(active.number)


def _scores_prompt(job: Job) -> bool:
    """Return whether the job reports its prompt's log probabilities. A chat reports them for its first choice only."""
    return job.request.sampling.prompt_scoring is not None and (job.choice == 0 or bool(job.request.prompts))


def _is_preemptible(line: ActiveJob, sampling: Sampling) -> bool:
    """Return whether other requests may preempt a line of a batch.

    One that is in quarantine may not, because other suspects wait for it, nor one whose client expects a seed to
    reproduce its text.
    """
    seeded = line.job.request.sampling.seed is not None and sampling.temperature != 0
    return not (line.quarantined or seeded)


def _read_history(claim: Claim) -> tuple[tuple[int, ...], bool]:
    """Return the tokens that earlier attempts published, and whether they published the prompt's log probabilities.

    Raises :class:`RequestRefused` for a damaged journal.
    """
    try:
        history = claim.history()
        return generated_tokens(history), any(isinstance(event, PromptLogprobs) for event in history)
    except UNREADABLE as error:
        report_unreadable(keys.journal(claim.job), error)
        raise refuse(
            ProblemKind.LOST,
            "The response cannot be continued: its journal in the store is damaged. Please send the request again.",
        ) from None
