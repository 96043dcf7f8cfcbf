"""The prompt process from outside: order, refusals, and what happens when it hangs or dies."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.protocol.errors import ProblemKind, RequestRefused
from shared.protocol.request import ChatRequest, Image, Message
from worker.engine.simulated_vocabulary import encode
from worker.prompt.interface import Prepared, PromptOptions
from worker.prompt.process import PromptError, PromptProcess

FAULTY = "tests.integration.faulty_prompt_child"


def _request(text: str) -> ChatRequest:
    return ChatRequest(model="m", messages=(Message(role="user", content=text),))


async def prepare(process: PromptProcess, request: ChatRequest) -> Prepared:
    return await process.prepared(process.call(request))


@pytest.fixture
async def simulated() -> AsyncIterator[PromptProcess]:
    process = PromptProcess(PromptOptions(engine="simulated", path="", context_length=1000))
    await process.start()
    yield process
    await process.stop()


@pytest.fixture
async def faulty(tmp_path: Path) -> AsyncIterator[PromptProcess]:
    options = PromptOptions(engine="simulated", path=str(tmp_path), context_length=1000)
    process = PromptProcess(options, deadline=1.0, module=FAULTY)
    await process.start()
    yield process
    await process.stop()


async def test_requests_are_answered_with_their_own_tokens(simulated: PromptProcess) -> None:
    assert await simulated.ready() == 1000
    texts = [f"text number {number}" for number in range(20)]
    answers = await asyncio.gather(*(prepare(simulated, _request(text)) for text in texts))
    assert [answer.tokens for answer in answers] == [encode(f"user: {text}\nassistant:") for text in texts]


async def test_plain_prompts_need_no_template(simulated: PromptProcess) -> None:
    assert (await prepare(simulated, ChatRequest(model="m", prompts=("the sea",)))).tokens == encode("the sea")
    assert (await prepare(simulated, ChatRequest(model="m", prompts=((1, 2),)))).tokens == (1, 2)


async def test_a_refusal_carries_its_problem_and_harms_nobody(simulated: PromptProcess) -> None:
    long, short = await asyncio.gather(
        prepare(simulated, _request("x" * 1001)), prepare(simulated, _request("x")), return_exceptions=True
    )
    assert isinstance(long, RequestRefused)
    assert long.problem.kind is ProblemKind.CONTEXT_LENGTH
    assert isinstance(short, Prepared)


async def test_a_request_that_hangs_is_refused_and_those_behind_it_are_served(faulty: PromptProcess) -> None:
    await faulty.ready()
    before = faulty.pid
    first, second, third = await asyncio.gather(
        prepare(faulty, _request("hang")),
        prepare(faulty, _request("four")),
        prepare(faulty, _request("seven..")),
        return_exceptions=True,
    )
    assert isinstance(first, RequestRefused)
    assert first.problem.kind is ProblemKind.TEMPLATE
    assert "1 s" in first.problem.message
    assert isinstance(second, Prepared)
    assert isinstance(third, Prepared)
    assert (second.tokens, third.tokens) == (tuple(range(4)), tuple(range(7)))
    assert faulty.pid != before


async def test_a_request_in_hand_at_a_crash_is_tried_once_more(faulty: PromptProcess) -> None:
    first, second = await asyncio.gather(prepare(faulty, _request("crash once")), prepare(faulty, _request("four")))
    assert (len(first.tokens), len(second.tokens)) == (10, 4)


async def test_a_request_that_crashes_twice_is_refused_and_those_behind_it_are_served(faulty: PromptProcess) -> None:
    first, second = await asyncio.gather(
        prepare(faulty, _request("crash")), prepare(faulty, _request("four")), return_exceptions=True
    )
    assert isinstance(first, RequestRefused)
    assert first.problem.kind is ProblemKind.POISON
    assert isinstance(second, Prepared)
    assert second.tokens == tuple(range(4))


async def test_a_child_that_dies_idle_is_replaced(faulty: PromptProcess) -> None:
    await faulty.ready()
    dead = faulty.pid
    assert dead is not None
    os.kill(dead, signal.SIGKILL)
    assert (await prepare(faulty, _request("four"))).tokens == tuple(range(4))
    assert faulty.pid != dead


async def test_a_caller_that_gives_up_does_not_hold_up_the_others(faulty: PromptProcess) -> None:
    await faulty.ready()
    hanging = asyncio.create_task(prepare(faulty, _request("hang")))
    given_up = asyncio.create_task(prepare(faulty, _request("crash")))
    await asyncio.sleep(0)
    hanging.cancel()
    given_up.cancel()
    assert (await prepare(faulty, _request("four"))).tokens == tuple(range(4))


async def test_stopping_refuses_whoever_waits_and_ends_the_process(faulty: PromptProcess) -> None:
    await faulty.ready()
    pid = faulty.pid
    assert pid is not None
    waiting = [asyncio.create_task(prepare(faulty, _request(text))) for text in ("hang", "four")]
    await asyncio.sleep(0.05)
    await faulty.stop()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(result) for result in results] == [PromptError, PromptError]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(PromptError):
        await prepare(faulty, _request("late"))


@pytest.mark.parametrize(
    ("context_length", "reason"),
    [(1, "no such tokenizer"), (2, "the prompt process ended with exit code 0 while it loaded")],
)
async def test_a_tokenizer_that_does_not_load_is_reported(tmp_path: Path, context_length: int, reason: str) -> None:
    options = PromptOptions(engine="simulated", path=str(tmp_path), context_length=context_length)
    process = PromptProcess(options, module=FAULTY)
    await process.start()
    with pytest.raises(PromptError, match=reason):
        await process.ready()
    with pytest.raises(PromptError):
        await prepare(process, _request("x"))
    await process.stop()


async def test_replacements_that_die_while_they_load_are_replaced(tmp_path: Path, faulty: PromptProcess) -> None:
    (tmp_path / "interruptions").write_text("2")
    await faulty.ready()
    assert (await prepare(faulty, _request("crash once"))).tokens
    assert (tmp_path / "interruptions").read_text() == "0"


async def test_too_many_replacements_that_die_while_they_load_are_an_error(
    tmp_path: Path, faulty: PromptProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.subprocess.calls._MAX_INTERRUPTED_LOADS", 2)
    (tmp_path / "interruptions").write_text("100")
    await faulty.ready()
    with pytest.raises(PromptError, match="ended with exit code 3 while it loaded"):
        await prepare(faulty, _request("crash once"))
    with pytest.raises(PromptError, match="while it loaded"):
        await faulty.ended()


async def test_the_real_child_reports_a_missing_model() -> None:
    process = PromptProcess(PromptOptions(engine="openvino", path="/no/such/model.gguf", context_length=10))
    await process.start()
    with pytest.raises(PromptError, match=r"/no/such/model\.gguf can't be loaded"):
        await process.ready()
    await process.stop()


async def test_the_places_of_images_are_returned(simulated: PromptProcess) -> None:
    images = (Image(param="messages[0].content[0]", digest="a"), Image(param="messages[0].content[1]", digest="b"))
    request = ChatRequest(model="m", messages=(Message(role="user", content="look", images=images),))
    prepared = await prepare(simulated, request)
    assert prepared.places == ((0, len(prepared.tokens)), (1, len(prepared.tokens)))
    assert (await prepare(simulated, _request("x"))).places == ()
