"""Every dialect, with images, on the oldest supported stores."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.dialects import DIALECTS
from tests.support.fleet import PATIENT, SEEING, Fleet, fleet
from tests.support.pictures import data_url, picture, png
from tests.support.store_servers import OLDEST, store_server

TEXT = "[[tokens 5]]"


@pytest.fixture(scope="module", params=OLDEST)
def old(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder, server = tmp_path_factory.mktemp(request.param), store_server(request.param)
    with fleet(folder, store_server=server, lease=PATIENT) as running:
        running.worker(*SEEING)
        running.api()
        yield running


def image(seed: int) -> str:
    """The data URL of an image that no other test sends."""
    return data_url(png(picture(seed).pixels()))


def messages(seed: int) -> list[dict[str, Any]]:
    parts = [{"type": "text", "text": TEXT}, {"type": "image_url", "image_url": {"url": image(seed)}}]
    return [{"role": "user", "content": parts}]


def source(seed: int) -> dict[str, Any]:
    head, _, data = image(seed).partition(",")
    return {"type": "base64", "media_type": head.removeprefix("data:").partition(";")[0], "data": data}


IMAGES: dict[str, dict[str, Any]] = {
    "chat": {"messages": messages(1), "n": 2},
    "responses": {
        "input": [
            {
                "role": "user",
                "content": [{"type": "input_text", "text": TEXT}, {"type": "input_image", "image_url": image(2)}],
            }
        ]
    },
    "anthropic": {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": TEXT}, {"type": "image", "source": source(3)}]}
        ],
    },
    "azure": {"messages": messages(4)},
    "ovms_chat": {"messages": messages(5)},
    "ollama_generate": {"images": [image(7).partition(",")[2]]},
}
"""What the bodies of dialects get."""


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", DIALECTS)
def test_a_dialect(old: Fleet, name: str, stream: bool) -> None:
    body = DIALECTS[name].body(TEXT, "sim") | {"stream": stream} | IMAGES.get(name, {})
    status, _, answer = old.request("POST", DIALECTS[name].path, json.dumps(body))
    assert status == 200, answer
    assert b'"error":{' not in answer
    with old.redis() as store:
        assert store.keys("vinoqueue:media*") == []


@pytest.mark.parametrize("kind", ["chat completion", "background response"])
def test_what_is_stored(old: Fleet, kind: str) -> None:
    if kind == "chat completion":
        path, body = "/v1/chat/completions", {"messages": messages(6), "store": True}
    else:
        path, body = "/v1/responses", {"input": TEXT, "background": True}
    status, _, answer = old.request("POST", path, json.dumps({"model": "sim", **body}))
    assert status == 200, answer
    place = f"{path}/{json.loads(answer)['id']}"

    def is_complete() -> bool:
        status, _, stored = old.request("GET", place)
        return status == 200 and json.loads(stored).get("status", "completed") == "completed"

    old.until(is_complete, f"the {kind}")
    assert old.request("DELETE", place)[0] == 200
