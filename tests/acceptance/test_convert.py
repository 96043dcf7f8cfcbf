"""The default model converted by the command, really: as good as before, with the same prompts, and served."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shared.protocol.request import ChatRequest, Message, Tool
from tests.support.fleet import fleet
from worker.convert.conversion import convert
from worker.model.local import ModelError, resolve
from worker.prompt.maker import PromptMaker
from worker.prompt.openvino import load_prompt_maker
from worker.weights.compression import PER_CHANNEL, Weights

TINY = Path(__file__).parents[1] / "models" / "qwen2-byte-level-bpe"
TOOL = Tool(
    name="find_city", description="Find it", parameters='{"type":"object","properties":{"x":{"type":"integer"}}}'
)
REQUESTS: dict[str, dict[str, Any]] = {
    "messages": {
        "messages": (
            Message(role="system", content="Be brief."),
            Message(role="user", content="数学 😀 <|im_end|>\n  a1b2"),
            Message(role="assistant", content="Yes."),
            Message(role="user", content=""),
        )
    },
    "tools": {"messages": (Message(role="user", content="Where?"),), "tools": (TOOL,)},
    "plain prompt": {"prompts": ("Once upon a time<|endoftext|>",)},
    "long prompt": {"prompts": ("word " * 9000,)},
}


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default model in the command's default format."""
    folder = tmp_path_factory.mktemp("models") / "smol"
    # The perplexity on the first tokens of the sample is enough here, and takes a tenth of the time.
    command = [sys.executable, "-m", "cli.main", "model", "convert", "default", str(folder), "--max-context", "256"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    original, result, ratio, place = done.stdout.splitlines()
    assert (original.startswith("original "), result.startswith("converted "), place) == (True, True, str(folder))
    # The GGUF file's own groups have 32 weights too, so next to nothing is lost.
    assert 0.99 < float(ratio.split()[2]) < 1.01
    assert [file.name for file in folder.parent.iterdir()] == ["smol"]
    return folder


@pytest.fixture(scope="module")
def makers(converted: Path) -> list[PromptMaker]:
    """Prompt makers of the original and of the converted model."""
    return [
        load_prompt_maker(str(model.path), context_length=1 << 20)
        for model in (resolve("default"), resolve(str(converted)))
    ]


def test_the_context_is_stated_in_the_result(converted: Path) -> None:
    assert resolve("default").context_length == 8192
    assert resolve("default", max_context=256).context_length == resolve(str(converted)).context_length == 256


@pytest.mark.parametrize("kind", REQUESTS)
def test_prompts_are_those_of_the_original(kind: str, makers: list[PromptMaker]) -> None:
    request = ChatRequest(model="m", **REQUESTS[kind])
    expected, found = (maker.prepare(request).tokens for maker in makers)
    assert found == expected
    assert makers[0].plan(request) == makers[1].plan(request)


def test_a_worker_serves_it(converted: Path, tmp_path: Path) -> None:
    with fleet(tmp_path) as running:
        running.worker("--model", str(converted))
        running.api()
        answer = running.client().chat.completions.create(
            model="smol",
            messages=[{"role": "user", "content": "What is the capital of France?"}],
            temperature=0,
            max_tokens=30,
        )
    (choice,) = answer.choices
    assert (choice.message.content or "").startswith("The capital of France is Paris")
    assert choice.finish_reason == "stop"


def test_a_format_that_costs_too_much_is_not_written(tmp_path: Path) -> None:
    place = tmp_path / "new"
    place.mkdir()
    with pytest.raises(ModelError, match=r"times the original's .* allows 1\.01\. Nothing was written"):
        convert(str(TINY), place, Weights(group=PER_CHANNEL), max_perplexity_ratio=1.01)
    assert list(tmp_path.iterdir()) == [place]
    assert list(place.iterdir()) == []
