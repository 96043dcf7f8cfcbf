"""Nodes load the models of a catalogue by demand, and give memory from one to another without losing a request."""

import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.batches import chat_line, ended, submit
from tests.support.fleet import Fleet, Process
from tests.support.processes import family

ONE = """
[models.{name}]
source = "{source}"
memory = "60MB"
keep = "{keep}"
"""
WORDS = 30


def entry(name: str, source: str = "[[tokens 4]]", keep: str = "1h") -> str:
    return ONE.format(name=name, source=source, keep=keep)


@pytest.fixture
def service(patient_fleet: Fleet) -> Fleet:
    patient_fleet.api("--queue-timeout", "60", "--worker-grace", "1")
    return patient_fleet


def catalogue(service: Fleet, *entries: str) -> Path:
    file = service.folder / "models.toml"
    file.write_text("".join(entries))
    return file


def node(service: Fleet, file: Path, *options: str, memory: str = "100MB", name: str = "here") -> Process:
    """Start a node with room for one model, and wait until its catalogue is served."""
    engine = ("--engine", "simulated", "--sim-step", "0.02", "--node", name)
    times = ("--swap-wait", "0.5", "--swap-drain", "0.2", "--spread-wait", "30")
    process = service.start("node", "--models", str(file), "--memory", memory, *engine, *times, *options)
    service.until(lambda: process.popen.poll() is not None or name in hosts(service), "the node to register")
    assert process.popen.poll() is None, process.log.read_text()
    return process


def hosts(service: Fleet) -> set[str]:
    return {found["host"] for found in nodes(service)}


def nodes(service: Fleet) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(service.request("GET", "/v1/fleet")[2])["nodes"]
    return found


def states(service: Fleet) -> dict[str, str]:
    data = json.loads(service.request("GET", "/v1/models")[2])["data"]
    return {model["id"]: model["status"]["value"] for model in data}


def ask(service: Fleet, model: str, text: str = "[[tokens 4]]") -> tuple[int, dict[str, Any]]:
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": text}]})
    status, _, answer = service.request("POST", "/v1/chat/completions", body)
    return status, json.loads(answer)


def test_models_are_loaded_when_requests_wait_for_them(service: Fleet) -> None:
    file = catalogue(service, entry("a", keep="1s"), entry("b"))
    process = node(service, file)
    service.until(lambda: states(service) == {"a": "unloaded", "b": "unloaded"}, "the catalogue to be listed")
    assert service.status("/ready") == 200, "without ready replicas, no request would come that has a model loaded"
    for model in ("a", "b", "a"):  # there is room for one of them
        status, answer = ask(service, model)
        assert (status, answer.get("model")) == (200, model)
    assert len(service.workers()) == 1
    service.until(lambda: states(service) == {"a": "unloaded", "b": "unloaded"}, "the idle model to be unloaded")
    assert family(process.popen.pid) == [process.popen.pid], "an idle model leaves no process, and so no memory"
    unloads = {model["name"]: model["unloads"] for found in nodes(service) for model in found["models"]}
    assert unloads == {"a": {"swap": 1, "idle": 1}, "b": {"swap": 1}}
    status, answer = ask(service, "c")
    assert status == 404
    assert "Models: a, b." in answer["error"]["message"]


def test_a_stream_goes_on_when_its_model_is_back(service: Fleet) -> None:
    said = " ".join(f"word{index}" for index in range(WORDS))
    file = catalogue(service, entry("busy"), entry("other"))
    node(service, file, "--sim-step", "0.1")
    with ThreadPoolExecutor() as pool:
        stream = pool.submit(ask, service, "busy", f"[[say {said}]]")
        service.until(lambda: [one.get("used", 0) for one in service.workers("serving")] == [1], "the stream to run")
        assert ask(service, "other")[0] == 200
        assert not stream.done()
        status, answer = stream.result()
    assert status == 200
    assert answer["choices"][0]["message"]["content"] == said


def test_a_batch_has_a_model_loaded_but_takes_no_memory_from_requests(service: Fleet) -> None:
    node(service, catalogue(service, entry("busy"), entry("batch")))
    client = service.client()
    lines = [chat_line("one", model="batch")]
    assert ended(client, submit(client, lines), service.logs).status == "completed"
    messages: list[Any] = [{"role": "user", "content": "[[tokens 5000]]"}]
    with client.chat.completions.create(model="busy", messages=messages, stream=True) as stream:
        next(iter(stream))
        batch = submit(client, lines)
        service.until(lambda: client.batches.retrieve(batch.id).status == "in_progress", "the batch to begin")
        time.sleep(2)  # in which it would have its model loaded
        assert {one["model"] for one in service.workers()} == {"busy"}
    assert ended(client, batch, service.logs).status == "completed"


def test_a_model_that_fails_is_named_and_blocks_no_other(service: Fleet) -> None:
    node(service, catalogue(service, entry("broken", "[[fail load]]"), entry("good")))
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(ask, service, "broken")
        assert ask(service, "good")[0] == 200
        service.until(lambda: states(service).get("broken") == "failed", "the failure to be listed")
        status, answer = ask(service, "broken")
        assert (status, answer["error"]["code"]) == (503, "no_worker")
        assert "can't be loaded at the moment. here: the simulated" in answer["error"]["message"]
        assert waiting.result()[0] == 503


def test_a_model_larger_than_the_node_or_its_gpu_is_named(service: Fleet) -> None:
    gpu = 'device = "GPU"\n'
    file = catalogue(service, entry("a", keep="always"), entry("b") + gpu, entry("c").replace("60MB", "2GB"))
    node(service, file, "--device-memory", "GPU.0=50MB", memory="1GB")
    service.until(lambda: states(service) == {"a": "loaded", "b": "failed", "c": "failed"}, "the models to be listed")
    for model, flag in (("b", "models of GPU.0 may take 0.05 GB together (--device-memory)"), ("c", "(--memory)")):
        status, answer = ask(service, model)
        assert status == 503
        assert flag in answer["error"]["message"]
    config = json.loads(service.request("GET", "/v3/config")[2])
    assert config["a"] == {
        "model_version_status": [
            {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": "OK"}}
        ]
    }
    (failed,) = config["c"]["model_version_status"]
    assert (failed["state"], "--memory" in failed["status"]["error_message"]) == ("LOADING", True)
    (found,) = nodes(service)
    assert found["devices"] == {"GPU.0": 50_000_000}


def test_a_model_that_is_killed_while_it_loads_is_not_loaded_into_the_same_memory_again(service: Fleet) -> None:
    node(service, catalogue(service, entry("a", "[[crash load]]")), memory="80MB")
    assert ask(service, "a")[0] == 503
    status, answer = ask(service, "a")
    assert (status, answer["error"]["code"]) == (503, "no_worker")
    assert "killed by SIGKILL while it loaded; it needs 0.09 GB" in answer["error"]["message"]
    assert [model["loads"] for found in nodes(service) for model in found["models"]] == [1]


def test_a_model_that_waits_for_memory_says_what_it_lacks(service: Fleet) -> None:
    node(service, catalogue(service, entry("fixed", keep="always"), entry("other")))
    service.until(lambda: states(service).get("fixed") == "loaded", "the model that is kept to be loaded")
    lacks = "here: it needs 0.06 GB, and the models of this host may take 0.10 GB together (--memory), of which those"
    lacks += " that are always loaded leave 0.04 GB"
    loading = service.start("model", "load", "other")
    service.until(lambda: lacks in loading.log.read_text(), "the command to say so")
    service.until(
        lambda: lacks in service.request("GET", "/v1/models/other")[2].decode(), "the model's status to say so"
    )
    body = json.dumps({"model": "other", "messages": [{"role": "user", "content": "Hello"}]})
    headers = {"content-type": "application/json", "x-queue-timeout": "0.5"}
    status, _, answer = service.request("POST", "/v1/chat/completions", body, headers)
    assert (status, lacks in answer.decode()) == (503, True)
    loading.kill()


def test_another_node_continues_the_streams_of_one_that_is_killed(service: Fleet) -> None:
    said = " ".join(f"word{index}" for index in range(WORDS))
    file = catalogue(service, entry("a"))
    first = node(service, file, "--sim-step", "0.1", name="first")
    with ThreadPoolExecutor() as pool:
        stream = pool.submit(ask, service, "a", f"[[say {said}]]")
        service.until(lambda: [one.get("used", 0) for one in service.workers("serving")] == [1], "the stream to run")
        node(service, file, name="second")
        first.kill()
        status, answer = stream.result()
    assert status == 200
    assert answer["choices"][0]["message"]["content"] == said


def test_two_nodes_load_a_model_once_for_the_same_need(service: Fleet) -> None:
    file = catalogue(service, entry("a", "[[tokens 4]] [[load 0.5]]"))
    node(service, file, name="first")
    node(service, file, name="second")
    with ThreadPoolExecutor() as pool:
        answers = list(pool.map(lambda _: ask(service, "a")[0], range(8)))
    assert answers == [200] * 8
    assert sum(model.get("loads", 0) for found in nodes(service) for model in found["models"]) == 1


def test_requests_have_the_defaults_of_their_models_entry(service: Fleet) -> None:
    own = 'system = "Be brief."\nmax_tokens = 3\nchat_template_kwargs = {enable_thinking = true}\n'
    node(service, catalogue(service, entry("a", "[[tokens 40]]") + own))

    def ask(path: str, *roles: str, **fields: object) -> dict[str, Any]:
        messages = [{"role": role, "content": "hello"} for role in roles]
        status, _, body = service.request("POST", path, json.dumps({"model": "a", "messages": messages, **fields}))
        assert status == 200, body
        return dict(json.loads(body))

    assert ask("/apply-template", "user") == {"prompt": "system: Be brief.\nuser: hello\nassistant:"}
    assert ask("/apply-template", "system", "user")["prompt"].startswith("system: hello\nuser: hello\n")
    assert ask("/v1/chat/completions", "user")["usage"]["completion_tokens"] == 3
    assert ask("/v1/chat/completions", "user", max_tokens=5)["usage"]["completion_tokens"] == 5


def test_a_changed_catalogue_is_followed_and_a_wrong_one_refused(service: Fleet) -> None:
    file = catalogue(service, entry("a"), entry("old"))
    process = node(service, file, memory="200MB")
    assert ask(service, "a")[0] == ask(service, "old")[0] == 200
    file.write_text("[models.a]\nsauce = 1\n")
    process.signal(signal.SIGHUP)
    service.until(lambda: "The old catalogue stays" in process.log.read_text(), "the error to be reported")
    assert set(states(service)) == {"a", "old"}
    file.write_text(entry("a", "[[vocabulary 1]]") + entry("new"))
    process.signal(signal.SIGHUP)
    service.until(lambda: set(states(service)) == {"a", "new"}, "the new catalogue to be listed")
    assert ask(service, "new")[0] == ask(service, "a")[0] == 200


def test_a_node_that_stops_leaves_nothing_behind(service: Fleet) -> None:
    process = node(service, catalogue(service, entry("a")))
    assert ask(service, "a")[0] == 200
    assert process.stop() == 0
    with service.redis() as client:
        left = {name.decode() for name in client.scan_iter("vinoqueue:*")}
    assert not {name for name in left if "node:" in name or "placements" in name or "worker:" in name}


def post(service: Fleet, path: str, body: dict[str, str] | None = None) -> tuple[int, dict[str, Any]]:
    status, _, answer = service.request("POST", path, json.dumps(body or {}))
    return status, json.loads(answer)


def test_operators_load_and_unload_models(service: Fleet) -> None:
    always = entry("always", keep="always").replace("60MB", "10MB")
    node(service, catalogue(service, entry("a").replace("keep", 'aliases = ["first"]\nkeep'), entry("b"), always))
    service.until(lambda: states(service).get("always") == "loaded", "the model that is always there")
    code, printed = service.command("model", "load", "first")
    assert (code, printed.splitlines()[-1]) == (0, "The model 'a' is loaded on here.")
    # An idle model gives way, as to requests.
    status, model = post(service, "/v1/models/b/load")
    assert (status, model["id"]) == (200, "b")
    service.until(lambda: (states(service)["a"], states(service)["b"]) == ("unloaded", "loaded"), "the other to load")
    assert post(service, "/models/unload", {"model": "b"}) == (200, {"success": True})
    service.until(lambda: states(service)["b"] == "unloaded", "it to be unloaded")
    assert service.command("model", "unload", "always")[1].startswith("Error: The model 'always' is always loaded")
    assert post(service, "/v1/models/always/unload")[0] == 400
    assert service.request("POST", "/v1/models/a/load", None, {"origin": "https://other.example"})[0] == 403
    assert service.command("model", "load", "c") == (
        1,
        "Error: No node has the model 'c' in its catalogue. Models: a, always, b.\n",
    )
    assert post(service, "/models/load", {"model": "c"})[0] == post(service, "/v1/models/c/load")[0] == 404
    assert "name" in post(service, "/models/load", {"name": "c"})[1]["error"]["message"]
    with service.redis() as store:
        changes = store.xrange("vinoqueue:audit")
    assert [(change[b"action"], change[b"target"]) for _, change in changes] == [
        (b"model.load", b"a"),
        (b"model.load", b"b"),
        (b"model.unload", b"b"),
    ]


def test_a_command_to_load_tries_a_model_that_has_failed_again_at_once(service: Fleet) -> None:
    node(service, catalogue(service, entry("broken", "[[fail load]]")))
    for _ in range(2):
        code, said = service.command("model", "load", "broken")
        assert code == 1
        assert "here: the simulated model can't be loaded" in said
        assert "; it is loaded again in 5 s at the earliest" in said


def test_a_changed_entry_is_loaded_when_the_requests_of_the_old_one_have_ended(service: Fleet) -> None:
    said = " ".join(f"word{index}" for index in range(WORDS))
    file = catalogue(service, entry("a", "[[vocabulary 1]]"))
    node(service, file, "--sim-step", "0.1", memory="200MB")
    with ThreadPoolExecutor() as pool:
        stream = pool.submit(ask, service, "a", f"[[say {said}]]")
        service.until(lambda: [one.get("used", 0) for one in service.workers("serving")] == [1], "the stream to run")
        (old,) = service.workers("serving")
        file.write_text(entry("a", "[[vocabulary 2]]"))
        service.until(lambda: [one["id"] for one in service.workers("draining")] == [old["id"]], "the old one to drain")
        waiting = pool.submit(ask, service, "a")
        status, answer = stream.result()
        assert (status, answer["choices"][0]["message"]["content"]) == (200, said)
        assert waiting.result()[0] == 200
    (new,) = service.workers("serving")
    assert new["vocabulary"] != old["vocabulary"]
    assert [(model["loads"], model["unloads"]) for model in nodes(service)[0]["models"]] == [(2, {"changed": 1})]
