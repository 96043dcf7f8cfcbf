"""The prompt process: prompts and refusals."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from shared.protocol.errors import ProblemKind, RequestRefused
from shared.protocol.request import ChatRequest, Image, Message
from tests.integration.faulty_service import MODULE, FaultyOptions
from worker.processes.call_process import ServiceUnavailable
from worker.prompt.messages import PromptOptions
from worker.prompt.service import PromptProcess, prompt_process
from worker.simulated.engine import encode


def _request(text: str) -> ChatRequest:
    return ChatRequest(model="m", messages=(Message(role="user", content=text),))


@pytest.fixture
async def simulated() -> AsyncIterator[PromptProcess]:
    process = prompt_process(PromptOptions(engine="simulated", path="", context_length=1000))
    process.start()
    yield process
    await process.stop()


async def test_plain_prompts_need_no_template(simulated: PromptProcess) -> None:
    assert (await simulated.call(ChatRequest(model="m", prompts=("the sea",)), "")).tokens == encode("the sea")
    assert (await simulated.call(ChatRequest(model="m", prompts=((1, 2),)), "")).tokens == (1, 2)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [("hang", ProblemKind.TEMPLATE, "not ready within 1 s"), ("crash", ProblemKind.POISON, "process twice")],
)
async def test_a_request_that_ends_the_process_is_refused(
    tmp_path: Path, text: str, kind: ProblemKind, message: str
) -> None:
    faulty = prompt_process(cast(PromptOptions, FaultyOptions(str(tmp_path))), deadline=1.0, module=MODULE)
    faulty.start()
    with pytest.raises(RequestRefused, match=message) as refusal:
        await faulty.call(_request(text), "")
    assert refusal.value.problem.kind is kind
    await faulty.stop()


async def test_a_missing_model_is_reported() -> None:
    process = prompt_process(PromptOptions(engine="openvino", path="/no/such/model.gguf", context_length=10))
    process.start()
    with pytest.raises(ServiceUnavailable, match=r"/no/such/model\.gguf can't be loaded"):
        await process.ready()
    await process.stop()


async def test_the_places_of_images_are_returned(simulated: PromptProcess) -> None:
    images = (Image(param="messages[0].content[0]", digest="a"), Image(param="messages[0].content[1]", digest="b"))
    request = ChatRequest(model="m", messages=(Message(role="user", content="look", images=images),))
    prepared = await simulated.call(request, "")
    assert prepared.places == ((0, len(prepared.tokens)), (1, len(prepared.tokens)))
    assert (await simulated.call(_request("x"), "")).places == ()
