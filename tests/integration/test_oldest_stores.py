"""Every dialect, with images, on the oldest supported stores."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

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


BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": messages(1), "n": 2},
    "/v1/completions": {"prompt": TEXT},
    "/v1/responses": {
        "input": [
            {
                "role": "user",
                "content": [{"type": "input_text", "text": TEXT}, {"type": "input_image", "image_url": image(2)}],
            }
        ]
    },
    "/v1/messages": {
        "max_tokens": 9,
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": TEXT}, {"type": "image", "source": source(3)}]}
        ],
    },
    "/chat/completions?api-version=2024-05-01-preview": {"messages": messages(4)},
    "/v3/chat/completions": {"messages": messages(5)},
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", BODIES)
def test_a_dialect(old: Fleet, path: str, stream: bool) -> None:
    body = {"model": "sim", "stream": stream, **BODIES[path]}
    status, _, answer = old.request("POST", path, json.dumps(body))
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
