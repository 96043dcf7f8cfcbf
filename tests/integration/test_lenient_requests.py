"""What clients of other servers send: their paths, their probes, and fields that have no effect."""

import json
from typing import Any

import openai
import pytest

from tests.support.batches import chat_line, ended, results, submit
from tests.support.fleet import Fleet

HELLO = [{"role": "user", "content": "Hello"}]
IGNORED = "x-ignored-fields"
LENIENT: dict[str, Any] = {
    "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello", "cache_control": {}}], "vendor": 1}],
    "keep_alive": "5m",
    "use_beam_search": False,
    "tools": [],
    "user": None,
    "max_tokens": 3,
}
NAMES = "messages[].vendor, messages[].content[].cache_control, keep_alive"


def post(fleet: Fleet, path: str, **fields: Any) -> tuple[int, dict[str, str], bytes]:
    return fleet.request("POST", path, json.dumps({"model": "sim"} | fields))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v3/chat/completions"])
def test_what_has_no_effect_is_named_in_a_header(session_fleet: Fleet, path: str, stream: bool) -> None:
    status, headers, answer = post(session_fleet, path, **LENIENT, stream=stream)
    assert (status, set(headers[IGNORED].split(", "))) == (200, set(NAMES.split(", "))), answer
    _, headers, _ = post(session_fleet, path, messages=HELLO, max_tokens=3)
    assert IGNORED not in headers


def test_what_has_no_effect_in_a_batch_is_named_in_its_result(session_fleet: Fleet) -> None:
    client = session_fleet.client()
    batch = ended(client, submit(client, [chat_line("a", **LENIENT), chat_line("b")]))
    lenient, plain = results(client, batch.output_file_id)
    assert set(lenient["response"]["headers"][IGNORED].split(", ")) == set(NAMES.split(", "))
    assert plain["response"].keys() == {"status_code", "request_id", "body"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/chat/completions", {"messages": HELLO}),
        ("/models/chat/completions", {"messages": HELLO}),
        ("/completions", {"prompt": "Hello"}),
        ("/responses", {"input": "Hello"}),
    ],
)
def test_who_forgets_v1_is_served(session_fleet: Fleet, path: str, body: dict[str, Any]) -> None:
    status, _, answer = post(session_fleet, path, **body)
    assert (status, json.loads(answer).get("error")) == (200, None)
    status, _, answer = post(session_fleet, path, **body, temperature=9)
    assert (status, json.loads(answer)["error"]["param"]) == (400, "temperature")


def test_the_sdk_without_v1(session_fleet: Fleet) -> None:
    client = session_fleet.client(version="")
    assert [model.id for model in client.models.list()] == ["sim"]
    assert client.models.retrieve("sim").id == "sim"
    with pytest.raises(openai.BadRequestError, match="'sim' does not serve embeddings"):
        client.embeddings.create(model="sim", input="Hello")


def test_kserves_probes(session_fleet: Fleet) -> None:
    session_fleet.until(lambda: session_fleet.status("/v2/health/ready") == 200, "readiness")
    assert session_fleet.status("/v2/health/live") == 200
    assert session_fleet.request("GET", "/v2/models/sim/ready")[::2] == (200, b'{"ready":true}')
    assert session_fleet.status("/v2/models/none/ready") == 404
    assert session_fleet.status("/v1/config") == 200


def test_the_model_servers_tokens(session_fleet: Fleet) -> None:
    found = json.loads(post(session_fleet, "/tokenize", prompt="the red")[2])["tokens"]
    assert json.loads(post(session_fleet, "/v3/tokenize", text="the red")[2]) == {"tokens": found}
    cut = json.loads(post(session_fleet, "/v3/tokenize", text=["the red", "", "x"], max_length=2)[2])
    assert cut == {"tokens": [[116, 104], [], [120]]}
    status, _, answer = post(session_fleet, "/v3/tokenize", text="x", pad_to_max_length=True)
    assert (status, json.loads(answer)["error"]["param"]) == (400, "pad_to_max_length")


def test_the_only_model_needs_no_name(session_fleet: Fleet) -> None:
    def tokens(path: str, **fields: Any) -> Any:
        status, _, answer = session_fleet.request("POST", path, json.dumps(fields))
        assert status == 200, answer
        return json.loads(answer)

    found = tokens("/tokenize", prompt="Hello", add_special_tokens=False)["tokens"]
    assert tokens("/v3/tokenize", text="Hello") == {"tokens": found}
    assert tokens("/detokenize", tokens=found) == {"prompt": "Hello"}
    status, _, answer = session_fleet.request("GET", "/tokenizer_info")
    assert status == 200
    described = json.loads(answer)
    assert (described["model"], described["eos_token"], described["chat_template"]) == ("sim", None, None)
    assert session_fleet.request("GET", "/tokenizer_info?model=none")[0] == 404
