"""A model under several names, and a model that is being loaded, as clients see them."""

import json
import socket
from typing import Any

import openai
import pytest

from tests.support.fleet import SIMULATED, Fleet, Process
from tests.support.fleet_fixture import fleet_fixture

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
JSON = {"content-type": "application/json"}


aliased = fleet_fixture(*SIMULATED, "--served-model-name", "first", "org/second")


def test_a_model_answers_to_each_of_its_names_and_gives_the_first(aliased: Fleet) -> None:
    client = aliased.client()
    assert [model.id for model in client.models.list()] == ["first", "org/second"]
    assert client.models.retrieve("org/second").model_dump()["max_model_len"] == 8192
    for name in ("first", "org/second"):
        whole = client.chat.completions.create(model=name, messages=HELLO, max_tokens=3)
        chunks = list(client.chat.completions.create(model=name, messages=HELLO, max_tokens=3, stream=True))
        assert {whole.model, *(chunk.model for chunk in chunks)} == {"first"}
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="sim", messages=HELLO)
    # All names share one queue.
    store = aliased.redis()
    assert list(store.scan_iter("*second*")) == []


def test_azures_header_takes_each_name(aliased: Fleet) -> None:
    headers = {**JSON, "azureml-model-deployment": "org/second"}
    query = "?api-version=2024-05-01-preview"
    status, _, raw = aliased.request(
        "POST", f"/chat/completions{query}", json.dumps({"messages": HELLO, "max_tokens": 3}), headers
    )
    assert (status, json.loads(raw)["model"]) == (200, "first")
    status, _, raw = aliased.request("GET", f"/info{query}", None, headers)
    assert (status, json.loads(raw)["model_name"]) == (200, "first")


def test_a_retired_model_can_be_forgotten(empty_fleet: Fleet) -> None:
    fleet = empty_fleet
    fleet.worker()
    fleet.api("--worker-grace", "1")
    body = json.dumps({"model": "sim", "messages": HELLO})

    def chat() -> int:
        return fleet.request("POST", "/v1/chat/completions", body)[0]

    (worker,) = fleet.workers()
    assert fleet.command("model", "forget", "sim") == (
        1,
        f"Error: The model 'sim' has workers: {worker['id']}. Stop them first, or drain them.\n",
    )
    assert fleet.command("model", "forget", "si\x1bm") == (
        1,
        "Error: No model 'si\\x1bm' is remembered. Remembered: sim.\n",
    )
    fleet.processes[0].stop()
    fleet.until(lambda: chat() == 503, "the worker to be gone")
    assert fleet.command("model", "forget", "sim") == (0, "Forgot the model 'sim'.\n")
    fleet.until(lambda: chat() == 404, "the model to be forgotten")


def test_a_key_for_one_name_opens_the_model(empty_fleet: Fleet) -> None:
    empty_fleet.worker("--engine", "simulated", "--model", "first", "--served-model-name", "first,org/second")
    secrets = {name: empty_fleet.key("create", "--models", name) for name in ("first", "org/second")}
    empty_fleet.api()
    for name, secret in secrets.items():
        body = json.dumps({"model": name, "messages": HELLO, "max_tokens": 3})
        assert empty_fleet.request("POST", "/v1/chat/completions", body, {**JSON, "api-key": secret})[0] == 200


def _load_slowly(fleet: Fleet, silent: socket.socket) -> Process:
    return fleet.start(
        "worker", "--engine", "simulated", "--model", "sim=[[load 3600]]", "--served-model-name", "sim", "alias"
    )


def _download_slowly(fleet: Fleet, silent: socket.socket) -> Process:
    port = silent.getsockname()[1]
    return fleet.start(
        "worker", "--model", "org/name", "--served-model-name", "sim", "alias",
        HF_ENDPOINT=f"http://127.0.0.1:{port}", HF_HOME=str(fleet.folder), HF_HUB_OFFLINE="0",
    )  # fmt: skip


def test_a_model_that_is_being_loaded_is_unavailable_and_not_unknown(empty_fleet: Fleet) -> None:
    empty_fleet.api()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for start in (_load_slowly, _download_slowly):
            worker = start(empty_fleet, silent)
            empty_fleet.until(lambda: empty_fleet.workers("loading"), "the worker to load its model")
            _check_unavailable(empty_fleet)
            worker.kill()
            empty_fleet.until(lambda: not empty_fleet.workers(), "the worker to be gone")


def _check_unavailable(empty_fleet: Fleet) -> None:
    client = empty_fleet.client()
    for name in ("sim", "alias"):
        with pytest.raises(openai.InternalServerError, match="is loading") as refused:
            client.chat.completions.create(model=name, messages=HELLO)
        assert refused.value.status_code == 503
        assert float(refused.value.response.headers["retry-after"]) > 0
        with pytest.raises(openai.InternalServerError) as described:
            client.models.retrieve(name)
        assert described.value.status_code == 503
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="unknown", messages=HELLO)
    assert list(client.models.list()) == []
