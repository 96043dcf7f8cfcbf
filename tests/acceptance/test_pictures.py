"""Right answers about unseen pictures through the service: every interface and file format, in a batch with texts."""

import base64
import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from PIL import Image

from tests.support.fleet import Fleet, fleet
from tests.support.pictures import easy_question

MODEL = Path(__file__).parents[1] / "models" / "qwen2-vl-shapes"
COUNTED = ", ".join(map(str, range(1, 21))) + "."
PATHS = ("/v1/chat/completions", "/v3/chat/completions", "/chat/completions?api-version=2024-05-01-preview")
"""Of OpenAI, OpenVINO Model Server and Azure."""
FORMATS = ("PNG", "JPEG", "WEBP", "GIF")


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("shapes")) as running:
        running.add_workers(1, "--model", f"shapes={MODEL}", "--precision", "exact", "--cache-size", "1")
        running.api()
        yield running


def answer(running: Fleet, path: str, content: object) -> str:
    body = {"model": "shapes", "messages": [{"role": "user", "content": content}], "max_tokens": 80, "temperature": 0}
    status, _, raw = running.request("POST", path, json.dumps(body))
    assert status == 200, raw
    text: str = json.loads(raw)["choices"][0]["message"]["content"]
    return text


def about(seed: int, form: str) -> tuple[list[object], str]:
    """A message about a picture in a file of ``form``, and the right answer."""
    drawn, asked = easy_question(seed)
    file = io.BytesIO()
    Image.fromarray(drawn.pixels(224, 224)).save(file, form)
    url = f"data:image/{form.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"
    return [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": asked.text}], asked.answer


@pytest.mark.parametrize("path", PATHS)
def test_answers_show_that_the_model_saw_the_picture(path: str, shapes: Fleet) -> None:
    asked = [about(seed, FORMATS[seed % 4]) for seed in range(1000, 1040)]
    with ThreadPoolExecutor(12) as pool:
        counting = [pool.submit(answer, shapes, path, "Count to 20.") for _ in range(4)]
        answers = list(pool.map(lambda one: answer(shapes, path, one[0]), asked))
        assert [one.result() for one in counting] == [COUNTED] * 4
    assert sum(text == right for text, (_, right) in zip(answers, asked, strict=True)) >= 38
