"""Runs jobs that generate text: prompt, grammar check, gates, engine."""

import logging
import secrets
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import msgspec

from shared.parsers import markup_of
from shared.parsers.formats import REASONING_FORMATS, TOOL_FORMATS, OutputFormat
from shared.protocol.errors import ContextExcess, ProblemKind, context_exceeded, refuse
from shared.protocol.events import Started
from shared.protocol.queue import Claim
from shared.protocol.request import Job, Sampling, fill_in
from worker.engine.handle import CurrentEngine
from worker.engine.protocol import EngineInfo, EngineSequence, ReasoningLimit
from worker.grammar.plan import Plan
from worker.grammar.service import GrammarProcess
from worker.jobs.attempt import Attempt
from worker.jobs.gates import Gate
from worker.jobs.payload import read_history
from worker.jobs.request_cache import RequestCache
from worker.prompt.messages import Prepared

logger = logging.getLogger(__name__)

_SEED_RANGE = 2**64


async def compute(attempt: Attempt, engine: CurrentEngine, gates: Sequence[Gate]) -> None:
    """Pass the gates, and have the engine compute the sequence of ``attempt`` to its end."""
    with ExitStack() as held:
        for gate in gates:
            hold = await gate.enter(attempt)
            held.callback(hold.leave)
            attempt.holds.append(hold)
        # If its engine has ended meanwhile, the attempt is released while it waits for the next one.
        process = (await engine.wait()).process
        attempt.added_at = time.monotonic()
        process.add(attempt.sequence)
        await attempt.ended.wait()


@dataclass(slots=True, eq=False)
class GenerationRunner:
    """Runs generations in the current engine."""

    worker: str
    """The id of this worker."""
    engine: CurrentEngine
    requests: RequestCache
    grammars: GrammarProcess | None
    """Without it, every grammar is accepted."""
    gates: Sequence[Gate]
    """What an attempt enters, in this order."""
    sampling: Sampling
    """The model's defaults."""

    async def run(self, attempt: Attempt, job: Job) -> None:
        """Have the engine generate to the job's end. Raises :class:`RequestRefused` and :class:`ServiceUnavailable`."""
        # 1. The prompt process renders and plans, once for all jobs of a request.
        claim, prepared = attempt.claim, await self.requests.prompt(job)
        engine = await self.engine.wait()
        if prepared.counted is not None and not engine.info.adjusts_logits:
            prepared = msgspec.structs.replace(prepared, plan=prepared.counted)
        plan = prepared.plan
        # 2. The grammar process compiles and tries what the engine would stop for.
        if plan.grammar is not None and self.grammars is not None:
            await self.grammars.check(plan.grammar, plan.param, job.tenant)
        # 3. What the engine gets, and what the client hears first.
        attempt.engine = engine.process
        attempt.started_event = self._started(job, prepared, engine.info, claim)
        attempt.sequence = self._sequence(attempt, job, prepared, engine.info)
        if attempt.resumed or claim.lost_workers or claim.crashes:
            logger.info("job %s continues here after %d tokens", job.id, attempt.resumed)
        # 4. The gates let it pass, and the engine generates. Outputs go from its process to the publisher.
        await compute(attempt, self.engine, self.gates)

    def _sequence(self, attempt: Attempt, job: Job, prepared: Prepared, engine: EngineInfo) -> EngineSequence:
        """Return what the engine gets."""
        plan, (generated, scored) = prepared.plan, read_history(attempt.claim)
        sampling = self._resolve_sampling(job, len(prepared.tokens), engine)
        # A chat reports the log probabilities of its prompt for its first choice only.
        if scored or (job.choice and not job.request.prompts):
            sampling = msgspec.structs.replace(sampling, prompt_scoring=None)
        return EngineSequence(
            number=attempt.number,
            prompt=prepared.tokens,
            images=prepared.images,
            generated=generated,
            sampling=sampling,
            grammar=plan.grammar,
            shown_tokens=plan.shown_tokens,
            reasoning_limit=reasoning_limit(sampling, plan, engine),
            triggers=plan.triggers,
            markup=markup_of(job.request, attempt.started_event) if sampling.stop else None,
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


def reasoning_limit(sampling: Sampling, plan: Plan, engine: EngineInfo) -> ReasoningLimit | None:
    """Return the limit that ``sampling`` sets, or ``None``.

    Raises :class:`RequestRefused` for a strict budget that can't be enforced. Another one then has no effect.
    """
    budget = sampling.thinking_budget
    if budget is None:
        return None
    if not plan.reasoning:
        obstacle = "it has no known format of reasoning"
    elif not engine.adjusts_logits:
        obstacle = "a worker has no access to its logits, or speculates"
    elif sampling.beams > 1:
        obstacle = "a beam search has no budget"
    else:
        return _limit(budget.tokens, plan)
    if budget.strict:
        message = f"Unsupported parameter: '{budget.param}' is not supported with this model: {obstacle}."
        raise refuse(ProblemKind.INVALID, message, param=budget.param, code="unsupported_parameter")
    return None


def _limit(tokens: int, plan: Plan) -> ReasoningLimit:
    names = msgspec.convert({"tools": plan.tools or None, "reasoning": plan.reasoning}, OutputFormat)
    assert names.reasoning is not None
    form = REASONING_FORMATS[names.reasoning]
    calls = TOOL_FORMATS[names.tools] if names.tools else None
    return ReasoningLimit(
        tokens=tokens,
        begin=form.begin,
        # Calls inside reasoning are calls.
        ends=(form.end, *(calls.triggers if calls is not None and calls.in_reasoning else ())),
        end_tokens=plan.reasoning_end,
        opened=plan.in_reasoning,
        again=bool(form.turn),
    )
