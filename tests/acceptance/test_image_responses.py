"""Right answers about unseen pictures through the service: every interface, file format and usual client, in batches
with texts."""

import base64
import io
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from PIL import Image

from tests.support.batches import chat_line, ended, results, submit
from tests.support.eventually import PATIENCE
from tests.support.fleet import Fleet, exact
from tests.support.fleet_fixture import fleet_fixture
from tests.support.pictures import HELD_OUT, SHAPES_MODEL, data_url, png, question
from tests.support.tutorials import blocks, run

COUNTED = ", ".join(map(str, range(1, 21))) + "."
PICTURE, ASKED = question(HELD_OUT + 18)
"""Asks to describe four things."""
FORMATS = ("PNG", "JPEG", "WEBP", "GIF")


shapes = fleet_fixture(*exact(f"shapes={SHAPES_MODEL}", "--cache-size", "1"))


def body_of(content: object) -> dict[str, object]:
    return {"model": "shapes", "messages": [{"role": "user", "content": content}], "max_tokens": 80, "temperature": 0}


def answer(running: Fleet, content: object, version: str = "v1") -> str:
    status, _, raw = running.request("POST", f"/{version}/chat/completions", json.dumps(body_of(content)))
    assert status == 200, raw
    text: str = json.loads(raw)["choices"][0]["message"]["content"]
    return text


def about(seed: int) -> tuple[list[object], str]:
    """A message about a picture, in a file of one of the formats, and the right answer."""
    drawn, asked = question(HELD_OUT + seed)
    form = FORMATS[seed % len(FORMATS)]
    file = io.BytesIO()
    Image.fromarray(drawn.pixels(224, 224)).save(file, form)
    url = data_url(file.getvalue(), form.lower())
    return [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": asked.text}], asked.answer


def test_answers_show_that_the_model_saw_the_picture(shapes: Fleet) -> None:
    asked = [about(seed) for seed in range(1000, 1040)]
    with ThreadPoolExecutor(12) as pool:
        counting = [pool.submit(answer, shapes, "Count to 20.") for _ in range(4)]
        answers = list(pool.map(lambda one: answer(shapes, one[0]), asked))
        assert [one.result() for one in counting] == [COUNTED] * 4
    assert sum(text == right for text, (_, right) in zip(answers, asked, strict=True)) >= 0.95 * len(asked)


def test_a_batch_of_texts_and_pictures(shapes: Fleet) -> None:
    asked = [about(seed) if seed % 3 else ("Count to 20.", COUNTED) for seed in range(2000, 2030)]
    lines = [{**chat_line(str(number)), "body": body_of(content)} for number, (content, _) in enumerate(asked)]
    client = shapes.client()
    batch = ended(client, submit(client, lines))
    answers = {
        int(line["custom_id"]): line["response"]["body"]["choices"][0]["message"]["content"]
        for line in results(client, batch.output_file_id)
    }
    wrong = [content for number, (content, right) in enumerate(asked) if answers[number] != right]
    assert "Count to 20." not in wrong
    assert len(wrong) <= 0.05 * len(asked)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pictures") / "picture.png"
    path.write_bytes(png(PICTURE.pixels(224, 224)))
    return path


def encoded(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()


def test_responses(shapes: Fleet, file: Path) -> None:
    answer = shapes.client().responses.create(
        model="shapes",
        input=[
            {
                "role": "user",
                "content": [
                    {"type": "input_image", "image_url": data_url(file.read_bytes()), "detail": "auto"},
                    {"type": "input_text", "text": ASKED.text},
                ],
            }
        ],
        temperature=0,
    )
    assert answer.output_text == ASKED.answer


def test_anthropic(shapes: Fleet, file: Path) -> None:
    import anthropic

    with anthropic.Anthropic(
        base_url=f"http://127.0.0.1:{shapes.port}", api_key="none", max_retries=0, timeout=PATIENCE
    ) as client:
        answer = client.messages.create(
            model="shapes",
            max_tokens=40,
            messages=[
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "image",
                            "source": {"type": "base64", "media_type": "image/png", "data": encoded(file)},
                        },
                        {"type": "text", "text": ASKED.text},
                    ],
                }
            ],
            extra_body={"temperature": 0},
        )
    assert [block.text for block in answer.content if block.type == "text"] == [ASKED.answer]


def test_langchain(shapes: Fleet, file: Path) -> None:
    from langchain_core.messages import HumanMessage
    from langchain_openai import ChatOpenAI

    client = ChatOpenAI(
        model="shapes",
        base_url=f"http://127.0.0.1:{shapes.port}/v1",
        api_key=lambda: "none",
        temperature=0,
        max_retries=0,
        timeout=PATIENCE,
    )
    message = HumanMessage(
        content_blocks=[
            {"type": "image", "base64": encoded(file), "mime_type": "image/png"},
            {"type": "text", "text": ASKED.text},
        ]
    )
    assert "".join(str(chunk.text) for chunk in client.stream([message])) == ASKED.answer


def test_the_tutorial(shapes: Fleet, file: Path) -> None:
    for block in blocks("images"):
        question = block._replace(code=block.code.replace("What colour is the background?", ASKED.text))
        assert run(question, shapes, file.parent) == f"{ASKED.answer}\n"
