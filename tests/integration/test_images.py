"""Images through the whole service, with the simulated engine: from the request to the worker and its refusals."""

import base64
import io
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from PIL import Image

from tests.support.fleet import Fleet, fleet

SEEING = ("--engine", "simulated", "--model", "sim=[[see images]]", "--max-batch", "16", "--sim-step", "0.005")


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("seeing")) as running:
        running.worker(*SEEING, "--max-image-pixels", "10000")
        running.api()
        yield running


def file(form: str = "PNG", size: tuple[int, int] = (8, 8)) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", size, "red").save(data, form)
    return data.getvalue()


def ask(running: Fleet, *files: bytes, text: str = "[[tokens 5]]", **fields: Any) -> Any:
    parts: list[Any] = [{"type": "text", "text": text}]
    for data in files:
        url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
        parts.append({"type": "image_url", "image_url": {"url": url}})
    return running.client().chat.completions.create(
        model="sim", messages=[{"role": "user", "content": parts}], **fields
    )


def held(running: Fleet) -> int:
    with running.redis() as store:
        return sum(1 for _ in store.scan_iter("vinoqueue:media*"))


def test_a_model_says_that_it_takes_images(seeing: Fleet) -> None:
    (info,) = seeing.workers()
    assert info["modalities"] == ["text", "image"]


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "GIF"])
def test_images_reach_the_worker(seeing: Fleet, form: str) -> None:
    answer = ask(seeing, file(form), file(form, (20, 9)))
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 5
    seeing.until(lambda: held(seeing) == 0, "the images to be released")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (file()[:40], "The image can't be decoded: the file is truncated or damaged."),
        (file("TIFF"), "The image is a TIFF file; PNG, JPEG, WebP and still GIF files are read."),
        (b"<svg/>", "The image is an SVG or XML file; PNG, JPEG, WebP and still GIF files are read."),
        (file(size=(101, 100)), "The image is too large: it has 101 x 100 pixels, and at most 10000 are decoded."),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_no_image_is_refused_by_its_place(seeing: Fleet, data: bytes, message: str, stream: bool) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(seeing, file(), data, stream=stream)
    assert caught.value.body == {
        "message": message,
        "type": "invalid_request_error",
        "param": "messages[0].content[2]",
        "code": None,
    }
    seeing.until(lambda: held(seeing) == 0, "the images to be released")
