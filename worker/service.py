"""Runs claimed jobs: prompt, grammar check, engine, and the events published for each."""

import asyncio
import itertools
import logging
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from shared.protocol.errors import Problem, ProblemKind, RequestRefused, refuse
from shared.protocol.events import Alternatives, Failed, Finished, FinishReason, Rejected, Started, encode_event
from shared.protocol.queue import Claim, Lease
from shared.protocol.request import Job, Sampling
from shared.redis import keys
from shared.redis.records import UNREADABLE, report_unreadable
from worker.defaults import fill_in
from worker.engine.interface import EMPTY_DELTA_BYTES, EngineInfo, Gauges, Output, RawStep, Refused, Sequence
from worker.engine.process import EngineProcess
from worker.grammar.plan import Plan
from worker.grammar.process import GrammarProcess
from worker.poison import outline, whole
from worker.prefix_gate import PrefixGate
from worker.prompt.prefetch import Prompts
from worker.prompt.process import PromptError, PromptProcess
from worker.publisher import Publisher
from worker.quarantine import MAX_CRASHES, Quarantine
from worker.resume import generated_tokens

logger = logging.getLogger(__name__)

_SEED_RANGE = 2**64
_NO_GAUGES = Gauges(requests=0, scheduled=0, cache_usage=0.0, cache_bytes=0, steps=0, tokens=0)
_REASONS: dict[str, FinishReason] = {"stop": "stop", "length": "length"}


@dataclass(slots=True, eq=False)
class ActiveJob:
    """A claimed job and its progress through this worker. ``number`` names its sequence in the engine process."""

    job: Job
    lease: Lease
    number: int
    done: asyncio.Event = field(default_factory=asyncio.Event)
    prompt_tokens: int = 0
    started: bool = False
    added: bool = False
    quarantined: bool = False
    plan: Plan = field(default_factory=Plan)


class ModelService:
    """Runs claimed jobs in the current engine process and hands their events to the publisher."""

    def __init__(
        self,
        worker: str,
        *,
        max_lost_workers: int,
        log_poison: bool,
        prefix_gate: PrefixGate | None = None,
        sampling: Sampling | None = None,
    ) -> None:
        """``worker`` is this worker's id.

        A job is refused once ``max_lost_workers`` workers have disappeared while they held it. ``log_poison`` logs
        refused jobs in full, including their prompts. ``prefix_gate`` is given for an engine with a prefix cache.
        ``sampling`` holds the model's defaults that are not in its files.
        """
        self._sampling = sampling or Sampling()
        self._worker = worker
        self._max_lost_workers = max_lost_workers
        self._log_poison = log_poison
        self._prefix_gate = prefix_gate or PrefixGate(caching=False)
        self._quarantine = Quarantine()
        self._numbers = itertools.count(1)
        self._by_job: dict[str, ActiveJob] = {}
        self._by_number: dict[int, ActiveJob] = {}
        self._cancelled_early: dict[str, float] = {}
        self._engine: EngineProcess | None = None
        self._engine_up = asyncio.Event()
        self._prompts: Prompts | None = None
        self._grammars: GrammarProcess | None = None
        self._publisher: Publisher | None = None
        self.engine_info: EngineInfo | None = None
        self.gauges = _NO_GAUGES
        self.requests = 0

    def attach(self, publisher: Publisher, prompts: PromptProcess, grammars: GrammarProcess | None) -> None:
        """Set the publisher, the prompt process and, for an engine that supports grammars, the grammar process."""
        self._publisher = publisher
        self._prompts = Prompts(prompts)
        self._grammars = grammars

    def use(self, engine: EngineProcess | None, engine_info: EngineInfo | None) -> None:
        """Run jobs in ``engine`` from now on. ``None``: no engine is loaded, and jobs wait for the next one."""
        self._engine = engine
        self.engine_info = engine_info
        self.gauges = _NO_GAUGES
        self._prefix_gate.forget()
        if engine is None:
            self._engine_up.clear()
        else:
            self._engine_up.set()

    @property
    def active(self) -> int:
        """Number of jobs that hold a slot."""
        return len(self._by_job)

    def claims(self) -> list[tuple[str, int]]:
        """Return the claims held, as (job, attempt)."""
        return [(job, active.lease.attempt) for job, active in self._by_job.items()]

    def prefetch(self, job: Job) -> None:
        """Start preparing the prompt of a job whose claim is under way."""
        if self._prompts is not None and job.id not in self._by_job:
            self._prompts.begin(job)

    async def serve(self, claim: Claim, job: Job) -> None:
        """Run one job to its end. Any failure is published as the job's terminal event."""
        lease = Lease(job.id, claim.attempt, job.reply_to)
        active = ActiveJob(job=job, lease=lease, number=next(self._numbers))
        self._by_job[job.id] = active
        self._by_number[active.number] = active
        self.requests += 1
        try:
            if self._cancelled_early.pop(job.id, None) is not None:
                self._require_publisher().discard(lease)
            elif claim.crashes >= MAX_CRASHES or claim.lost_workers >= self._max_lost_workers:
                logger.error(
                    "poison request %s is refused after %d engine crashes and %d lost workers (%s)",
                    job.id,
                    claim.crashes,
                    claim.lost_workers,
                    whole(job) if self._log_poison else outline(job),
                )
                self._fail(active, _poison(claim))
            elif await self._begin(active, claim):
                await active.done.wait()
        except RequestRefused as refusal:
            self._fail(active, refusal.problem)
        except PromptError:
            # This worker is about to exit. It releases the claim, or the lease expires, and another worker continues.
            await active.done.wait()
        except Exception:
            logger.exception("request %s failed in the worker", job.id)
            self._fail(active, _internal())
        finally:
            self._forget(active)

    def cancel(self, job: str) -> None:
        """Stop a job whose client has disconnected. An unknown job is remembered: its claim may still arrive."""
        active = self._by_job.get(job)
        if active is None:
            self._remember_cancelled(job)
            return
        self._stop_computing(active)
        self._require_publisher().discard(active.lease)
        active.done.set()

    def abandon(self, job: str) -> None:
        """Stop a job whose lease this worker lost. Publishes nothing."""
        active = self._by_job.get(job)
        if active is not None:
            self._stop_computing(active)
            self._require_publisher().drop(active.lease)
            active.done.set()

    def abandon_these(self, jobs: Iterable[str]) -> None:
        """Stop jobs whose leases this worker lost."""
        for job in jobs:
            self.abandon(job)

    def abandon_all(self) -> list[tuple[str, int]]:
        """Stop all jobs and return their claims, to be released to the queue."""
        claims = self.claims()
        for job, _ in claims:
            self.abandon(job)
        return claims

    def suspects(self) -> frozenset[str]:
        """Return the jobs to suspect for an engine crash that has just happened."""
        return self._quarantine.suspects(job for job, active in self._by_job.items() if active.added)

    def cancel_replica(self, replica: str) -> None:
        """Stop the jobs of an API replica that has gone, except those with a pending completion."""
        orphans = [
            job for job, one in self._by_job.items() if one.job.reply_to == replica and not one.job.request.store
        ]
        if orphans:
            logger.warning("API replica %s is gone: cancelling %d of its requests", replica, len(orphans))
        for job in orphans:
            self.cancel(job)

    def on_stepped(self, report: RawStep) -> None:
        """Publish the outputs of a step as events. Hot path: called once per step, the loop runs once per token."""
        self.gauges = report.gauges
        publisher = self._require_publisher()
        for output in report.outputs:
            active = self._by_number.get(output.number)
            if active is None:
                continue
            if not active.started:
                publisher.add(active.lease, encode_event(self._started(active)))
            if len(output.delta) > EMPTY_DELTA_BYTES:
                publisher.add(active.lease, bytes(output.delta))
            if output.reason is not None:
                publisher.end(active.lease, _ending(output))
                active.done.set()
            elif active.quarantined:
                self._quarantine.progressed(active.job.id, output.end)
        publisher.flush()

    def on_refused(self, report: Refused) -> None:
        """End the job of a sequence that the engine refused."""
        active = self._by_number.get(report.number)
        if active is not None:
            self._fail(active, report.problem)
            active.done.set()

    async def _begin(self, active: ActiveJob, claim: Claim) -> bool:
        """Prepare the prompt and add the sequence to the engine. Returns False when the job ended meanwhile."""
        if self._prompts is None:
            raise RuntimeError("the service has no prompt process")
        prepared = await self._prompts.of(active.job)
        active.plan = prepared.plan
        if self._grammars is not None and active.plan.constraint is not None:
            await self._grammars.check(active.plan.constraint, active.plan.param)
        generated = _published(claim)
        if self._quarantine.concerns(claim.crashes, claim.lost_workers):
            await self._quarantine.begin(active.job.id, len(generated))
            active.quarantined = True
        if not active.done.is_set():
            await self._prefix_gate.acquire(active.number, prepared.tokens)
        # A claim can arrive while the engine is being replaced; it waits for the next one.
        await self._engine_up.wait()
        if active.done.is_set() or self._engine is None:
            return False
        if generated or claim.lost_workers or claim.crashes:
            logger.info("request %s goes on here after %d tokens", active.job.id, len(generated))
        active.prompt_tokens = len(prepared.tokens)
        sampling = self._complete(active, active.prompt_tokens)
        active.added = True
        self._engine.add(
            Sequence(
                number=active.number,
                prompt=prepared.tokens,
                generated=generated,
                sampling=sampling,
                constraint=active.plan.constraint,
                shown_tokens=active.plan.shown_tokens,
                free_until=active.plan.free_until,
                bounded=active.plan.bounded,
                alternatives=active.job.request.n,
            )
        )
        return True

    def _complete(self, active: ActiveJob, prompt_tokens: int) -> Sampling:
        """Return the job's sampling with defaults, seed and ``max_tokens`` filled in."""
        if self.engine_info is None:
            raise RuntimeError("no engine is loaded")
        request = active.job.request
        sampling = fill_in(fill_in(request.sampling, self._sampling), request.defaults, self.engine_info.stated)
        context = min(self.engine_info.context_length, self.engine_info.cache_tokens)
        room = context - prompt_tokens
        if room < 1:
            raise RequestRefused(
                Problem(
                    kind=ProblemKind.CONTEXT_LENGTH,
                    message=f"This worker can hold {context} tokens of prompt and answer together, "
                    f"but your messages resulted in {prompt_tokens} tokens. Please reduce their length.",
                    param="messages",
                )
            )
        seed = secrets.randbits(32) if sampling.seed is None else sampling.seed + active.job.choice
        return msgspec.structs.replace(
            sampling,
            max_tokens=room if sampling.max_tokens is None else min(room, sampling.max_tokens),
            seed=seed % _SEED_RANGE,
        )

    def _started(self, active: ActiveJob) -> Started:
        active.started = True
        self._prefix_gate.release(active.number, computed=True)
        return Started(
            worker=self._worker,
            prompt_tokens=active.prompt_tokens,
            fingerprint=self.engine_info.fingerprint if self.engine_info else "",
            tools=active.plan.tools,
            reasoning=active.plan.reasoning,
            in_reasoning=active.plan.in_reasoning,
        )

    def _fail(self, active: ActiveJob, problem: Problem) -> None:
        event = Failed(problem) if active.started else Rejected(problem)
        self._require_publisher().end_soon(active.lease, event)

    def _stop_computing(self, active: ActiveJob) -> None:
        self._by_number.pop(active.number, None)
        self._prefix_gate.release(active.number, computed=False)
        if active.added and self._engine is not None:
            self._engine.cancel(active.number)

    def _forget(self, active: ActiveJob) -> None:
        self._by_number.pop(active.number, None)
        self._by_job.pop(active.job.id, None)
        self._prefix_gate.release(active.number, computed=False)
        if active.quarantined:
            self._quarantine.end(active.job.id)

    def _remember_cancelled(self, job: str) -> None:
        """Remember a cancellation that arrived before the reply to its claim, for 30 s."""
        now = time.monotonic()
        self._cancelled_early = {known: at for known, at in self._cancelled_early.items() if now - at < 30}
        self._cancelled_early[job] = now

    def _require_publisher(self) -> Publisher:
        if self._publisher is None:
            raise RuntimeError("the service has no publisher")
        return self._publisher


def _ending(output: Output[msgspec.Raw]) -> Finished | Failed | Alternatives:
    if output.alternatives:
        return Alternatives(output.alternatives)
    if output.reason in _REASONS:
        return Finished(output.end, _REASONS[output.reason])
    return Failed(
        Problem(
            kind=ProblemKind.CACHE_EXHAUSTED,
            message="The worker's KV cache can't hold this request to its end. Shorten it, or lower max_tokens.",
        )
    )


def _poison(claim: Claim) -> Problem:
    deaths = f"{claim.crashes} engines" if claim.crashes else f"{claim.lost_workers} workers"
    return Problem(
        kind=ProblemKind.POISON, message=f"{deaths} failed while they ran this request. It will not be tried again."
    )


def _published(claim: Claim) -> tuple[int, ...]:
    """Return the tokens that earlier attempts published. Raises :class:`RequestRefused` for a damaged journal."""
    try:
        return generated_tokens(claim.history())
    except UNREADABLE as error:
        report_unreadable(keys.journal(claim.job), error)
        raise refuse(
            ProblemKind.LOST,
            "The answer can't go on: its journal in the store behind this service is damaged. "
            "Please send the request again.",
        ) from None


def _internal() -> Problem:
    return Problem(kind=ProblemKind.INTERNAL, message="The worker failed while it served this request.")
