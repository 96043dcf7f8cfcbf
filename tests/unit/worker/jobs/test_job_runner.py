"""One job from its claim to its end, and jobs that are stopped in each phase."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, cast

import msgspec
import pytest

from shared.protocol.errors import Problem, ProblemKind, RequestRefused, refuse
from shared.protocol.events import (
    CANCELLED,
    Delta,
    Event,
    Failed,
    Finished,
    PromptLogprobs,
    Rejected,
    Started,
)
from shared.protocol.queue import Lease
from shared.protocol.request import ChatRequest, Job, Message, PromptScoring, Sampling, TraceContext
from shared.runtime.tasks import cancel_all
from tests.support.eventually import PATIENCE
from tests.support.job_rig import INFO, Attempt, Hold, JobRig, Publisher, claim_of
from tests.support.recorded_spans import TRACE, RecordedSpans
from worker.engine.handle import EngineProcess, LoadedEngine
from worker.engine.protocol import (
    Ending,
    EngineInfo,
    EngineSequence,
    Gauges,
    Output,
    OutputGrammar,
    RawStep,
    SequenceRefused,
    Stepped,
)
from worker.grammar.plan import Plan
from worker.prompt.messages import Prepared

TENANT = "key-1"
PROMPT = tuple(range(512))
GAUGES = Gauges(1, 1, 0.0, 1, 1)


HELLO = ChatRequest(model="tiny", messages=(Message(role="user", content="hello"),))


class Engine:
    """An engine process that records its commands."""

    def __init__(self) -> None:
        self.added: list[EngineSequence] = []
        self.cancelled: list[int] = []
        self.preempted: list[tuple[int, ...]] = []

    def add(self, sequence: EngineSequence) -> None:
        self.added.append(sequence)

    def preempt(self, numbers: Iterable[int]) -> None:
        self.preempted.append(tuple(numbers))

    def cancel(self, number: int) -> None:
        self.cancelled.append(number)


class PromptMaker:
    """A prompt process whose replies the test provides, unless ``ready``."""

    def __init__(self) -> None:
        self.ready = True
        self.grammar: OutputGrammar | None = None
        self.counted: Plan | None = None
        self.replies: list[asyncio.Future[Prepared]] = []
        self.tenants: list[str] = []

    def call(self, request: ChatRequest, tenant: str) -> asyncio.Future[Prepared]:
        reply: asyncio.Future[Prepared] = asyncio.get_running_loop().create_future()
        self.replies.append(reply)
        self.tenants.append(tenant)
        if self.ready:
            reply.set_result(
                Prepared(PROMPT, Plan(grammar=self.grammar, param="response_format"), counted=self.counted)
            )
        return reply


class Published:
    """A publisher that records, per job, what it is asked for."""

    def __init__(self) -> None:
        self.record: dict[str, list[Any]] = {}

    def _note(self, lease: Lease, what: object) -> None:
        self.record.setdefault(lease.job, []).append(what)

    def add(self, lease: Lease, event: bytes) -> None:
        self._note(lease, msgspec.msgpack.decode(event, type=Event))

    def end(self, attempt: Attempt, event: Event) -> None:
        if attempt.terminal_event is None:
            attempt.terminal_event = event
            attempt.ended.set()
            self._note(attempt.lease, event)

    def drop(self, lease: Lease) -> None:
        self._note(lease, f"dropped attempt {lease.attempt}")

    def flush(self) -> None:
        pass


class Rig:
    """A :class:`JobRig` with everything around it replaced."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.published = Published()
        self.prompts = PromptMaker()
        self.tracing = RecordedSpans()
        self.checked_for: list[str] = []
        """Tenants whose grammars were checked."""
        self.refusal: RequestRefused | None = None
        """The result of these checks."""
        self.compiled = asyncio.Event()
        self.compiled.set()
        self.tasks: dict[str, asyncio.Task[None]] = {}
        rig = JobRig(
            lambda *_: cast(Publisher, self.published),
            prompts=self.prompts,
            grammars=self,
            tracing=self.tracing,
        )
        self.jobs, self.current, self.runner, self.outputs = rig.jobs, rig.current, rig.runner, rig.outputs
        self.generations = rig.generations

    async def check(self, grammar: OutputGrammar, param: str, tenant: str) -> None:
        self.checked_for.append(tenant)
        await self.compiled.wait()
        if self.refusal is not None:
            raise self.refusal

    def load(self, info: EngineInfo = INFO) -> None:
        self.current.set(LoadedEngine(cast(EngineProcess, self.engine), info))

    def start(
        self,
        job: str,
        *,
        request: ChatRequest = HELLO,
        choice: int = 0,
        trace: TraceContext | None = None,
        **claim: Any,
    ) -> asyncio.Task[None]:
        """Run a job; ``claim`` are the fields of its claim."""
        own = Job(id=job, reply_to="api-1", request=request, choice=choice, tenant=TENANT, trace=trace)
        task = self.tasks[job] = asyncio.create_task(self.runner.run(claim_of(own, **claim)))
        return task

    def step(self, *outputs: Output[Delta | None]) -> None:
        encoded = msgspec.msgpack.encode(Stepped(outputs, GAUGES))
        self.outputs.on_stepped(msgspec.msgpack.decode(encoded, type=RawStep))


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = Rig()
    yield rig
    await cancel_all(rig.tasks.values())


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def over(task: asyncio.Task[None]) -> bool:
    """Wait for the end of a task; return whether it was cancelled."""
    await asyncio.wait([task], timeout=PATIENCE)
    assert task.done()
    return task.cancelled()


async def test_a_job_publishes_its_events_and_ends(rig: Rig) -> None:
    rig.load()
    task = rig.start("a")
    await settle()
    (sequence,) = rig.engine.added
    assert (sequence.prompt, sequence.sampling.max_tokens) == (PROMPT, 4096 - len(PROMPT))
    rig.step(Output(sequence.number, 1, Delta(0, (7,), "x"), cached=2))
    rig.step(Output(sequence.number, 2, Delta(1, (8,), "y"), "stop", Ending(stop="END"), cached=2))
    assert not await over(task)
    started = rig.published.record["a"][0]
    assert started.prompt_seconds > 0
    assert started.prefill_seconds > 0
    assert msgspec.structs.replace(started, prompt_seconds=0.0, prefill_seconds=0.0) == Started(
        "w1", len(PROMPT), "fp", cached_tokens=2, attempt=1
    )
    assert rig.published.record["a"][1:] == [
        Delta(0, (7,), "x"),
        Delta(1, (8,), "y"),
        Finished(2, "stop", stop="END"),
    ]
    assert rig.engine.cancelled == []
    assert (len(rig.jobs), rig.jobs.total) == (0, 1)


async def test_prompts_and_grammars_count_for_the_tenant_which_may_be_told_to_wait(rig: Rig) -> None:
    rig.load()
    rig.prompts.grammar = OutputGrammar("any")
    rig.refusal = refuse(ProblemKind.RATE_LIMITED, "The share is used up.", retry_after=7.0)
    assert not await over(rig.start("a"))
    assert (rig.prompts.tenants, rig.checked_for) == ([TENANT], [TENANT])
    assert rig.published.record["a"] == [Rejected(rig.refusal.problem)]


@pytest.mark.parametrize("limits", [True, False])
async def test_a_grammar_counts_the_characters_of_strings_where_the_engine_does_not(rig: Rig, limits: bool) -> None:
    rig.load(msgspec.structs.replace(INFO, adjusts_logits=limits))
    rig.prompts.grammar = OutputGrammar("any")
    counted = OutputGrammar("counted")
    rig.prompts.counted = Plan(grammar=counted, param="response_format")
    rig.start("a")
    await settle()
    (sequence,) = rig.engine.added
    assert sequence.grammar == (rig.prompts.grammar if limits else counted)


@pytest.mark.parametrize(
    ("own", "tokens"),
    [
        (Sampling(max_length=600), 600 - len(PROMPT)),
        (Sampling(max_length=600, max_tokens=7), 7),
        (Sampling(max_length=len(PROMPT)), 4096 - len(PROMPT)),
    ],
)
async def test_a_models_own_lengths_limit_requests_without_one(rig: Rig, own: Sampling, tokens: int) -> None:
    rig.load()
    rig.generations.sampling = own
    rig.start("a")
    await settle()
    (sequence,) = rig.engine.added
    assert sequence.sampling.max_tokens == tokens


@pytest.mark.parametrize(("beams", "penalty"), [(1, 1.1), (2, None)])
async def test_the_engine_gets_complete_sampling_and_no_penalties_of_the_model_in_a_beam_search(
    rig: Rig, beams: int, penalty: float | None
) -> None:
    rig.load()
    rig.generations.sampling = Sampling(temperature=0.3, repetition_penalty=1.1)
    dialect = Sampling(temperature=1.0, top_p=1.0)
    rig.start("a", request=msgspec.structs.replace(HELLO, sampling=Sampling(beams=beams), defaults=dialect))
    await settle()
    (given,) = (sequence.sampling for sequence in rig.engine.added)
    assert (given.temperature, given.top_p, given.repetition_penalty) == (0.3, 1.0, penalty)


async def test_a_refusal_of_the_engine_rejects_a_job_that_has_not_started_and_fails_one_that_has(rig: Rig) -> None:
    rig.load()
    problem = Problem(kind=ProblemKind.INVALID, message="no")
    tasks = [rig.start(job) for job in ("a", "b")]
    await settle()
    rig.step(Output(1, 1, Delta(0, (7,), "x")))
    await settle()
    for number in (1, 2):
        rig.outputs.on_refused(SequenceRefused(number, problem))
    assert [await over(task) for task in tasks] == [False, False]
    assert rig.published.record["a"][-1] == Failed(problem)
    assert rig.published.record["b"][-1] == Rejected(problem)


async def test_the_log_probabilities_of_a_prompt_are_asked_for_once(rig: Rig) -> None:
    """Not again by a later attempt; for the first choice of a chat only, but for each choice of a completion."""
    rig.load()
    scoring = PromptScoring(top=2)
    chat = msgspec.structs.replace(HELLO, sampling=Sampling(prompt_scoring=scoring))
    plain = msgspec.structs.replace(chat, messages=(), prompts=("hello",))
    scored = PromptLogprobs((1, b"a"), (), ())
    rig.start("chat", request=chat)
    rig.start("second choice", request=chat, choice=1)
    rig.start("completion", request=plain, choice=1)
    rig.start("again", request=plain, attempt=2, history=[Started("w", 1, "fp")])
    await settle()
    (second,) = (one.number for one in rig.engine.added if one.sampling.prompt_scoring is None)
    rig.step(Output(second, 1, Delta(0, (7,), "x")))  # its prompt is in the prefix cache now
    rig.start("known", request=plain, attempt=2, history=[Started("w", 1, "fp"), scored, Delta(0, (7,), "x")])
    await settle()
    found = {rig.jobs.by_number[one.number].lease.job: one.sampling.prompt_scoring for one in rig.engine.added}
    assert found == {"chat": scoring, "second choice": None, "completion": scoring, "again": scoring, "known": None}


async def test_prompts_with_log_probabilities_do_not_wait_for_each_other(rig: Rig) -> None:
    """The prefix cache is of no use to them."""
    rig.load()
    request = msgspec.structs.replace(HELLO, sampling=Sampling(prompt_scoring=PromptScoring()))
    for job in ("a", "b"):
        rig.start(job, request=request)
    await settle()
    assert len(rig.engine.added) == 2


async def test_a_claim_that_arrives_between_two_engines_waits_for_the_next(rig: Rig) -> None:
    rig.load()
    rig.current.clear()
    rig.start("a")
    await settle()
    assert rig.engine.added == []
    assert (rig.current.capacity, rig.current.slots) == (0, 4)
    rig.load()
    await settle()
    assert len(rig.engine.added) == 1


def waits_for_its_prompt(rig: Rig) -> None:
    rig.prompts.ready = False


def waits_for_its_grammar(rig: Rig) -> None:
    rig.prompts.grammar = OutputGrammar("a+")
    rig.compiled.clear()


def waits_for_an_engine(rig: Rig) -> None:
    rig.current.clear()


def runs(rig: Rig) -> None:
    pass


@pytest.mark.parametrize("phase", [waits_for_its_prompt, waits_for_its_grammar, waits_for_an_engine, runs])
@pytest.mark.parametrize("cause", ["client", "replica", "lease"])
async def test_a_job_that_is_stopped_ends_at_once_in_every_phase(
    rig: Rig, phase: Callable[[Rig], None], cause: str
) -> None:
    rig.load()
    phase(rig)
    task = rig.start("a")
    await settle()
    (lease,) = rig.jobs.leases()
    if cause == "client":
        rig.jobs.cancel("a")
    elif cause == "replica":
        rig.jobs.cancel_replica("api-1")
    else:
        rig.jobs.abandon([lease])
    rig.step(Output(1, 1, Delta(0, (7,), "late")))
    assert await over(task)
    assert rig.published.record == {"a": ["dropped attempt 1" if cause == "lease" else CANCELLED]}
    assert rig.engine.cancelled == ([1] if phase is runs else [])
    assert len(rig.jobs) == 0
    assert all(reply.done() for reply in rig.prompts.replies), "a prompt that nobody needs is withdrawn"


class RecordingGate:
    """A gate that records who enters, progresses and leaves, and is closed at first if the test says so."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log
        self.opened = asyncio.Event()
        self.opened.set()

    async def enter(self, attempt: Attempt) -> Hold:
        self.log.append(f"{attempt.lease.job} at {self.name}")
        await self.opened.wait()
        return RecordingHold(f"{attempt.lease.job} {{}} {self.name}", self.log)


class RecordingHold(Hold):
    def __init__(self, sign: str, log: list[str]) -> None:
        self._sign = sign
        self._log = log

    def progress(self, tokens: int) -> bool:
        self._log.append(self._sign.format(f"has {tokens} in"))
        return tokens < 2

    def leave(self) -> None:
        self._log.append(self._sign.format("leaves"))


@pytest.mark.parametrize("waits", [True, False])
async def test_an_attempt_passes_the_gates_in_order_and_leaves_those_it_has_passed(rig: Rig, waits: bool) -> None:
    rig.load()
    log: list[str] = []
    first, second = RecordingGate("1", log), RecordingGate("2", log)
    rig.generations.gates = (first, second)
    if waits:
        second.opened.clear()
    task = rig.start("a")
    await settle()
    assert log == ["a at 1", "a at 2"]
    assert [sequence.number for sequence in rig.engine.added] == ([] if waits else [1])
    if not waits:
        for position in range(3):
            rig.step(Output(1, position + 1, Delta(position, (7,), "x")))
        assert log[2:] == ["a has 1 in 1", "a has 1 in 2", "a has 2 in 1", "a has 2 in 2"]
    log.clear()
    rig.jobs.cancel("a")
    assert await over(task)
    assert log == (["a leaves 1"] if waits else ["a leaves 2", "a leaves 1"])


BATCH = msgspec.structs.replace(HELLO, tier="batch")


async def test_batch_requests_wait_and_are_preempted_for_another_request_until_its_first_token(rig: Rig) -> None:
    """All gates together."""
    rig.load()
    rig.start("batch", request=BATCH)
    await settle()
    rig.prompts.ready = False
    rig.start("other")
    await settle()
    rig.prompts.replies[-1].set_result(Prepared(tuple(range(1000, 1512)), Plan()))
    await settle()
    assert rig.engine.preempted == [(1,)]
    rig.prompts.ready = True
    rig.start("late batch", request=BATCH)
    await settle()
    rig.start("same prompt")
    await settle()
    assert [sequence.number for sequence in rig.engine.added] == [1, 2, 4], (
        "the prompt of a batch request is not shared"
    )
    rig.step(*(Output(number, 1, Delta(0, (7,), "x")) for number in (2, 4)))
    await settle()
    assert rig.engine.preempted == [(1,), ()]
    rig.step(Output(1, 1, Delta(0, (7,), "x")))
    await settle()
    assert [sequence.number for sequence in rig.engine.added] == [1, 2, 4, 3]


async def test_a_cancellation_that_overtakes_the_claim_ends_the_job(rig: Rig) -> None:
    rig.load()
    rig.jobs.cancel("a")
    assert not await over(rig.start("a"))
    assert rig.published.record == {"a": [CANCELLED]}
    assert rig.prompts.replies == []


async def test_a_new_attempt_replaces_an_older_one(rig: Rig) -> None:
    rig.load()
    older = rig.start("a")
    await settle()
    (lease,) = rig.jobs.leases()
    newer = rig.start("a", attempt=2)
    assert await over(older)
    rig.jobs.abandon([lease])
    await settle()
    assert not newer.done(), "only the older lease was lost"
    assert rig.published.record == {"a": ["dropped attempt 1"]}
    rig.step(Output(2, 0, None, "stop"))
    assert not await over(newer)


async def test_a_job_that_keeps_losing_workers_is_refused(rig: Rig) -> None:
    rig.load()
    assert not await over(rig.start("a", lost_workers=5))
    (event,) = rig.published.record["a"]
    assert event.problem.kind is ProblemKind.POISON
    assert rig.prompts.replies == []


async def test_a_job_with_tokens_of_another_vocabulary_is_refused(rig: Rig) -> None:
    rig.load()
    assert not await over(rig.start("a", attempt=2, history=[Started("w", 1, "fp"), Delta(0, (7,), "x")], foreign=True))
    (event,) = rig.published.record["a"]
    assert event.problem.kind is ProblemKind.LOST
    assert "another vocabulary" in event.problem.message
    assert rig.engine.added == []


async def test_an_error_in_the_worker_ends_the_job(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.prompts.ready = False
    task = rig.start("a")
    await settle()
    rig.prompts.replies[0].set_exception(RuntimeError("a defect"))
    assert not await over(task)
    (event,) = rig.published.record["a"]
    assert event.problem.kind is ProblemKind.INTERNAL
    assert "a defect" in caplog.text


async def spans_of(rig: Rig, end: Callable[[Attempt], object], **options: Any) -> list[tuple[str, object, str]]:
    """The spans of an attempt that has generated one token when ``end`` happens: name, outcome and error."""
    rig.load()
    task = rig.start("a", trace=TRACE, **options)
    await settle()
    (sequence,) = rig.engine.added
    rig.step(Output(sequence.number, 1, Delta(0, (7,), "x")))
    end(rig.jobs.by_number[sequence.number])
    await over(task)
    return [(span.name, span.attributes.get("vinoqueue.outcome"), span.error) for span in rig.tracing.spans]


async def test_an_attempt_has_a_span_with_its_phases(rig: Rig) -> None:
    def finish(active: Attempt) -> None:
        rig.step(Output(active.number, 2, Delta(1, (8,), "y"), "stop"))

    assert await spans_of(rig, finish) == [("attempt", "stop", "")]
    (span,) = rig.tracing.spans
    assert (span.attributes["gen_ai.usage.output_tokens"], span.parent) == (2, TRACE)
    assert [name for name, _ in span.events] == ["prompt ready", "first token"]
    times = [span.started_at, *(at for _, at in span.events), span.ended_at]
    assert times == sorted(times)


@pytest.mark.parametrize(
    ("move", "error"), [("worker_draining", ""), ("engine_lost", "engine_lost"), (None, None), ("cancelled", "")]
)
async def test_the_span_of_a_stopped_attempt_says_why(rig: Rig, move: Any, error: str | None) -> None:
    """One whose lease was lost has none: this worker is taken for dead."""

    def stop(active: Attempt) -> None:
        if move == "cancelled":
            rig.jobs.cancel("a")
        else:
            rig.jobs.abandon([active.lease], move)

    assert await spans_of(rig, stop) == ([] if error is None else [("attempt", move, error)])


async def test_a_refused_job_has_a_span_with_its_problem(rig: Rig) -> None:
    rig.load()
    await over(rig.start("a", trace=TRACE, crashes=2))
    (span,) = rig.tracing.spans
    assert (span.name, span.error, span.events) == ("attempt", ProblemKind.POISON, [])


async def test_a_job_without_a_trace_has_no_spans(rig: Rig) -> None:
    rig.load()
    rig.start("a")
    await settle()
    rig.jobs.cancel("a")
    await settle()
    assert rig.tracing.spans == []
