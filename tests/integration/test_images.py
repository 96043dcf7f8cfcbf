"""Images through the whole service, with the simulated engine: from the request to the worker and its refusals."""

import io
import json
import struct
import zlib
from typing import Any

import openai
import pytest
from PIL import Image

from tests.support.fleet import SEEING, Fleet
from tests.support.fleet_fixture import fleet_fixture
from tests.support.pictures import data_url

seeing = fleet_fixture(*SEEING, api=("--media-domains", "localhost", "--max-images", "16"))


def file(form: str = "PNG", size: tuple[int, int] = (8, 8)) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", size, "red").save(data, form)
    return data.getvalue()


def ask(running: Fleet, *files: bytes, text: str = "[[tokens 5]]", **fields: Any) -> Any:
    parts: list[Any] = [{"type": "text", "text": text}]
    parts += [{"type": "image_url", "image_url": {"url": data_url(data)}} for data in files]
    return running.client().chat.completions.create(
        model="sim", messages=[{"role": "user", "content": parts}], **fields
    )


def bomb() -> bytes:
    """A PNG file of 30,000 x 30,000 pixels that is smaller than 1 kB; the decoder would find out where it ends."""
    header = struct.pack(">IIBBBBB", 30_000, 30_000, 1, 0, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(100_000), 9)), (b"IEND", b""))
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def held(running: Fleet) -> int:
    """The number of requests whose images are stored."""
    with running.redis() as store:
        return sum(1 for _ in store.scan_iter("arq:job:request:*"))


def test_a_model_says_that_it_takes_images(seeing: Fleet) -> None:
    (info,) = seeing.workers()
    assert info["modalities"] == ["text", "image"]


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "GIF"])
def test_images_reach_the_worker(seeing: Fleet, form: str) -> None:
    answer = ask(seeing, file(form), file(form, (20, 9)))
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 5
    seeing.until(lambda: held(seeing) == 0, "the images to be released")


HOSTILE = {
    "bomb": ([data_url(bomb())], "it has 30000 x 30000 pixels"),
    "header only": ([data_url(file()[:33])], "truncated or damaged"),
    "script": ([data_url(b"<script>alert(1)</script>")], "PNG, JPEG, WebP and still GIF files are read"),
    "archive": ([data_url(b"PK\x03\x04" + file())], "PNG, JPEG, WebP and still GIF files are read"),
    "empty": ([data_url(b"")], "empty"),
    "line": ([data_url(file(size=(400, 1)))], "one side must be less than 200 times"),
    "hundred images": ([data_url(file())] * 100, "the maximum is 16"),
    "text as data": (["data:image/png,hello"], "base64"),
    "damaged base64": (["data:image/png;base64,####"], "base64"),
    "private address": (["http://localhost:6379/a.png"], "not public"),
    "foreign host": (["http://169.254.169.254/latest/meta-data"], "not among the allowed ones"),
    "local file": (["file:///etc/passwd"], "file"),
    "ftp": (["ftp://localhost/a.png"], "ftp"),
}


def test_images_are_counted(seeing: Fleet) -> None:
    def counted(path: str, **fields: Any) -> Any:
        status, _, answer = seeing.request("POST", path, json.dumps({"model": "sim"} | fields))
        return json.loads(answer)["input_tokens"] if status == 200 else json.loads(answer)["error"]["message"]

    url, text = data_url(file()), {"type": "text", "text": "Hello"}
    message = counted("/v1/messages/count_tokens", messages=[{"role": "user", "content": [text]}])
    source = {"type": "base64", "media_type": "image/png", "data": url.partition(",")[2]}
    block = {"type": "image", "source": source}
    # In the simulated engine, images have no tokens.
    assert counted("/v1/messages/count_tokens", messages=[{"role": "user", "content": [text, block]}]) == message
    parts = [{"type": "input_text", "text": "Hello"}, {"type": "input_image", "image_url": url, "detail": "auto"}]
    assert counted("/v1/responses/input_tokens", input=[{"role": "user", "content": parts}]) > 0
    source["data"] = "AAAA"
    assert "image" in counted("/v1/messages/count_tokens", messages=[{"role": "user", "content": [text, block]}])
    messages = [{"role": "user", "content": [text, {"type": "image_url", "image_url": {"url": url}}]}]
    assert "only token counts include images" in counted("/tokenize", messages=messages)


def test_hostile_images_harm_nobody_else(seeing: Fleet) -> None:
    """One text is generated all the time, and others with images in between."""
    client = seeing.client()
    text = client.chat.completions.create(
        model="sim", messages=[{"role": "user", "content": "[[tokens 1000]]"}], max_tokens=1000, stream=True
    )
    assert next(text)
    for name, (urls, message) in HOSTILE.items():
        parts: list[Any] = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model="sim", messages=[{"role": "user", "content": parts}])
        body: Any = caught.value.body
        assert message in body["message"], (name, body)
        assert body["param"].startswith("messages[0].content"), (name, body)
        assert ask(seeing, file()).choices[0].finish_reason == "stop", name
    *_, last = (chunk for chunk in text if chunk.choices)
    assert last.choices[0].finish_reason in ("stop", "length")
    seeing.until(lambda: held(seeing) == 0, "the images to be released")


def test_images_that_wait_leave_room_for_those_of_other_keys(empty_fleet: Fleet) -> None:
    fleet = empty_fleet
    keys = [fleet.key("create", "--name", name) for name in "ab"]
    fleet.worker(*SEEING, "--max-batch", "1")
    fleet.api("--max-media-bytes", "4000")
    headers = [{"content-type": "application/json", "authorization": f"Bearer {key}"} for key in keys]
    # Fills the only slot.
    body: dict[str, Any] = {"model": "sim", "input": "[[tokens 8000]]", "background": True}
    assert fleet.request("POST", "/v1/responses", json.dumps(body), headers[1])[0] == 200
    with fleet.redis() as store:
        fleet.until(lambda: store.zcard("vinoqueue:inflight:sim") == 1, "the slot to be full")

    def look(key: int, size: int) -> tuple[int, dict[str, str], bytes]:
        image = {"type": "input_image", "image_url": data_url(file() + bytes(size - len(file())))}
        body = {"model": "sim", "input": [{"role": "user", "content": [image]}], "background": True}
        return fleet.request("POST", "/v1/responses", json.dumps(body), headers[key])

    assert [look(0, 500)[0] for _ in range(4)] == [200] * 4
    status, answer, refusal = look(0, 500)
    assert (status, answer["retry-after"]) == (429, "1")
    assert b"leave no room for those of this one" in refusal
    assert look(1, 1900)[0] == 200
    status, _, refusal = look(1, 4001)
    assert (status, json.loads(refusal)["error"]["param"]) == (413, "input[0].content[0]")
