"""Workers that come, go, die and drain, while requests wait and stream."""

import http.client
import json
import signal
import threading
from zlib import crc32

import openai
import pytest
from openai.types.chat import ChatCompletionChunk, ChatCompletionMessageParam

from tests.support.eventually import PATIENCE
from tests.support.fleet import SIMULATED, Fleet, text_of
from tests.support.fleet_fixture import fleet_fixture
from worker.simulated.engine import WORDS, encode

BODY = json.dumps({"model": "sim", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 3})
HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello"}]


lasting = fleet_fixture(lease=None)
"""Tests kill its engine and leave its streams, and no process ends."""


def stream(fleet: Fleet, content: str = "hello", tokens: int = 40) -> openai.Stream[ChatCompletionChunk]:
    return fleet.client().chat.completions.create(
        model="sim", messages=[{"role": "user", "content": content}], max_tokens=tokens, stream=True
    )


def slots_used(fleet: Fleet) -> int:
    return sum(worker.get("used", 0) for worker in fleet.workers())


def engine_requests(fleet: Fleet) -> int:
    return sum(worker.get("engine_requests", 0) for worker in fleet.workers())


def test_a_worker_waits_for_the_store_and_then_serves(empty_fleet: Fleet) -> None:
    fleet = empty_fleet
    fleet.store.stop()
    address = f"127.0.0.1:{fleet.store.port}"
    worker = fleet.start("worker", *SIMULATED, "--worker-id", "w1")
    log = worker.log.read_text
    fleet.until(lambda: log().count(f"waits for the store at {address}: ") == 2, "the line and its repetition")
    assert "serves" not in log()
    fleet.store.start()
    fleet.until(lambda: "worker w1 serves sim on SIMULATED" in log(), "the worker to serve")


def test_another_lease_than_the_fleets_is_refused(lasting: Fleet) -> None:
    options = {"worker": SIMULATED, "api": ("--port", "0")}
    others = [lasting.start(kind, *own, "--lease", "3") for kind, own in options.items()]
    (worker,) = lasting.workers()
    for other in others:
        assert other.popen.wait(PATIENCE) == 1
        assert f"--lease is 3 s here, but 2 s in worker {worker['id']} on {worker['host']}." in other.log.read_text()
        lasting.processes.remove(other)


def test_a_worker_is_drained_and_resumed_on_command(empty_fleet: Fleet) -> None:
    fleet = empty_fleet

    def command(*arguments: str) -> tuple[int, list[str]]:
        code, text = fleet.command(*arguments)
        return code, text.splitlines()

    # On a busy machine, records of workers outlive late heartbeats.
    lease = ("--lease", "6")
    workers = [fleet.worker(*SIMULATED, "--drain", "0.5", *lease, "--worker-id", name) for name in ("first", "second")]
    fleet.api(*lease)
    texts: list[str] = []
    client = threading.Thread(target=lambda: texts.append(text_of(stream(fleet, "[[tokens 2000]]", 2000))))
    client.start()
    fleet.until(lambda: slots_used(fleet) == 1, "the request to run")
    (busy,) = (worker["id"] for worker in fleet.workers() if worker.get("used"))
    assert command("worker", "drain", busy) == (
        0,
        [
            f"{busy} drains: it has 1 requests.",
            f"{busy} has no requests any more. To use it again: vinoqueue worker resume {busy}",
        ],
    )
    client.join()
    assert len(texts[0].split()) > 1900  # the other worker has continued it
    (line,) = (line for line in command("status")[1] if line.startswith(busy))
    assert " draining " in line
    workers[busy == "first"].stop()
    fleet.until(lambda: fleet.status("/ready") == 503, "no worker to serve")
    assert command("worker", "resume", busy) == (0, [f"{busy} is serving."])
    fleet.until(lambda: fleet.status("/ready") == 200, "the worker to serve again")
    assert text_of(stream(fleet, tokens=3))
    for word, status in (("drain", "draining"), ("resume", "serving")):
        code, _, body = fleet.request("POST", f"/v1/fleet/workers/{busy}/{word}")
        assert (code, json.loads(body)) == (200, {"id": busy, "status": status, "used": 0})
    assert fleet.request("POST", "/v1/fleet/workers/nobody/drain")[0] == 404
    assert fleet.request("POST", f"/v1/fleet/workers/{busy}/drain", None, {"origin": "https://other.example"})[0] == 403
    unknown = [f"Error: There is no worker 'nobody'. Registered workers: {busy}."]
    assert command("worker", "drain", "nobody") == (1, unknown)
    code, lines = command("worker", "--lease", "2", "drain", busy)
    assert (code, lines[-1]) == (2, "Error: Write --lease after 'drain'.")


def test_a_worker_added_while_requests_wait_takes_some(empty_fleet: Fleet) -> None:
    # Long enough for some to wait still when the second worker has started, on a slow machine too.
    slow = (*SIMULATED[:-1], "0.1")
    empty_fleet.worker(*slow)
    empty_fleet.api()
    answers: list[str] = []
    threads = [
        threading.Thread(target=lambda: answers.append(text_of(stream(empty_fleet, "[[tokens 75]]", 75))))
        for _ in range(40)
    ]
    for thread in threads:
        thread.start()
    empty_fleet.until(lambda: slots_used(empty_fleet) == 16, "the first worker to be full")
    empty_fleet.worker(*slow)
    empty_fleet.until(lambda: slots_used(empty_fleet) > 16, "the second worker to take some")
    for thread in threads:
        thread.join()
    assert len(answers) == 40
    assert len(set(answers)) == 1


def test_a_stream_survives_the_death_of_its_engine(lasting: Fleet) -> None:
    (before,) = lasting.workers("serving")
    assert text_of(stream(lasting, "[[crash at 10]]", 60)).count(" ") > 50
    lasting.until(
        lambda: (
            [one.get("engine_restarts", 0) for one in lasting.workers("serving")]
            == [before.get("engine_restarts", 0) + 1]
        ),
        "the restart to be logged",
    )


@pytest.mark.parametrize("crash", [6, 30, 60, 80])
def test_stop_strings_have_no_effect_in_calls_and_reasoning_through_the_death_of_the_engine(
    lasting: Fleet, crash: int
) -> None:
    said = '<think>Oh, a stop.\n</think>\n\nSee:\n<tool_call>\n{"name": "f", "arguments": {"a": "stop"}}\n</tool_call>'
    with lasting.client() as client:
        answer = client.chat.completions.create(
            model="sim",
            messages=[{"role": "user", "content": f"[[say {said}]][[crash at {crash}]]"}],
            tools=[{"type": "function", "function": {"name": "f"}}],
            reasoning_effort="low",
            stop=["stop", "\n", '"a"'],
        )
    (choice,) = answer.choices
    assert ((choice.message.model_extra or {})["reasoning_content"], choice.message.content) == ("Oh, a stop.", "See:")
    assert choice.finish_reason == "tool_calls"
    (call,) = choice.message.tool_calls or []
    assert call.type == "function"
    assert json.loads(call.function.arguments) == {"a": "stop"}


def test_an_answer_that_continues_a_message_survives_the_death_of_its_engine(lasting: Fleet) -> None:
    with lasting.client() as client:
        answer = client.chat.completions.create(
            model="sim",
            messages=[
                {"role": "user", "content": "[[crash at 10]]"},
                {"role": "assistant", "content": "Once upon a time"},
            ],
            max_tokens=30,
            extra_body={"continue_final_message": True, "add_generation_prompt": False},
        )
    prompt = encode("user: [[crash at 10]]\nassistant: Once upon a time")
    # What the simulated engine generates depends on the prompt's tokens.
    words = [WORDS[crc32(place.to_bytes(4), crc32(repr(prompt).encode())) % len(WORDS)] for place in range(30)]
    assert answer.choices[0].message.content == "".join(words)
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(prompt), 30)


def test_a_request_that_kills_every_engine_is_refused(lasting: Fleet) -> None:
    with pytest.raises(openai.APIError):
        text_of(stream(lasting, "[[crash]]"))
    lasting.until(lambda: lasting.workers("serving"), "the engine to come back")
    assert text_of(stream(lasting))
    (line,) = (line for line in lasting.logs().splitlines() if "is refused" in line)
    assert "1 messages" in line
    assert "[[crash]]" not in lasting.logs()


def test_a_hung_engine_is_replaced(lasting: Fleet) -> None:
    assert text_of(stream(lasting, "[[hang at 5]]", 30)).count(" ") >= 28


def test_a_draining_worker_ends_what_it_runs_and_its_model_is_then_unavailable(small_fleet: Fleet) -> None:
    chunks = stream(small_fleet, tokens=100)  # a tenth of the time that the worker has
    next(chunks)
    small_fleet.processes[0].signal(signal.SIGTERM)
    assert text_of(chunks)
    assert small_fleet.processes[0].stop() == 0
    assert small_fleet.workers() == []
    small_fleet.until(lambda: small_fleet.status("/ready") == 503, "readiness to end")
    assert small_fleet.status("/ready/replica") == 200
    with pytest.raises(openai.InternalServerError) as refused:
        small_fleet.client().chat.completions.create(model="sim", messages=HELLO)
    assert refused.value.status_code == 503
    assert float(refused.value.response.headers["retry-after"]) > 0


def test_a_drain_past_its_time_hands_the_rest_over(empty_fleet: Fleet) -> None:
    first = empty_fleet.worker(*SIMULATED[:-1], "0.05", "--drain", "0.2")  # generates for long after the drain
    empty_fleet.api()
    expected = text_of(stream(empty_fleet, tokens=100))
    chunks = stream(empty_fleet, tokens=100)
    beginning = [next(chunks) for _ in range(5)]
    assert first.stop() == 0
    other = empty_fleet.worker()
    assert text_of(iter(beginning)) + text_of(chunks) == expected
    assert "continues here after" in other.log.read_text()


def test_a_draining_api_serves_until_it_closes_its_port(empty_fleet: Fleet) -> None:
    empty_fleet.worker()
    api = empty_fleet.api("--drain-delay", str(PATIENCE), "--drain", str(PATIENCE))
    chunks = stream(empty_fleet, "[[tokens 1000]]", tokens=1000)
    next(chunks)
    api.signal(signal.SIGTERM)
    empty_fleet.until(lambda: empty_fleet.status("/ready/replica") == 503, "readiness to end")
    assert empty_fleet.status("/ready") == 503
    assert b"vinoqueue_ready 1.0" in empty_fleet.request("GET", "/metrics")[2]
    status, headers, _ = empty_fleet.request("POST", "/v1/chat/completions", BODY)
    assert (status, headers["connection"]) == (200, "close")
    api.signal(signal.SIGINT)  # ends the delay
    empty_fleet.until(lambda: empty_fleet.status("/live") == 0, "the port to be closed")
    assert text_of(chunks)
    assert api.popen.wait(PATIENCE) == 0


def test_a_request_that_waits_for_the_process_is_served_before_the_port_closes(small_fleet: Fleet) -> None:
    """The kernel has accepted its connection, and the replica has not yet seen it when it stops listening."""
    api = small_fleet.processes[1]
    small_fleet.until(lambda: small_fleet.status("/ready") == 200, "readiness")
    api.signal(signal.SIGSTOP)
    connection = http.client.HTTPConnection("127.0.0.1", small_fleet.port, timeout=PATIENCE)
    connection.request("POST", "/v1/chat/completions", BODY, {"content-type": "application/json"})
    api.signal(signal.SIGTERM)
    api.signal(signal.SIGCONT)
    answer = connection.getresponse()
    assert (answer.status, answer.getheader("connection")) == (200, "close")
    connection.close()
    assert api.popen.wait(PATIENCE) == 0


@pytest.mark.parametrize("streamed", [True, False])
def test_a_client_that_goes_away_frees_its_slot(lasting: Fleet, streamed: bool) -> None:
    leave_in_the_middle(lasting, streamed)
    lasting.until(lambda: slots_used(lasting) == 0 and engine_requests(lasting) == 0, "the slot to be free")
    lasting.until(lambda: lasting.redis().keys("arq:job:*") == [], "the request to be deleted")


def test_a_client_that_goes_away_while_it_waits_leaves_the_queue(lasting: Fleet) -> None:
    holders = [stream(lasting, "[[tokens 8000]]", 8000) for _ in range(16)]
    for holder in holders:
        next(holder)
    leave_in_the_middle(lasting, streamed=False, wait_for_slot=False)
    store = lasting.redis()
    lasting.until(lambda: store.zcard("vinoqueue:queue:sim") == 0, "the queue to be empty")
    lasting.until(lambda: slots_used(lasting) == 16, "the others to be seen at work still")
    for holder in holders:
        holder.close()


def leave_in_the_middle(fleet: Fleet, streamed: bool, wait_for_slot: bool = True) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", fleet.port)
    body = {"model": "sim", "messages": [{"role": "user", "content": "[[tokens 5000]]"}], "stream": streamed}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
    store = fleet.redis()
    if wait_for_slot:
        fleet.until(lambda: engine_requests(fleet) == 1, "the request to run")
    else:
        fleet.until(lambda: store.zcard("vinoqueue:queue:sim") == 1, "the request to wait")
    connection.close()


def test_a_poisonous_request_takes_nobody_down_with_it(empty_fleet: Fleet) -> None:
    empty_fleet.add_workers(2, *SIMULATED, "--log-poison-requests")
    empty_fleet.api()
    expected = text_of(stream(empty_fleet, tokens=150))
    answers: list[str] = []
    threads = [
        threading.Thread(target=lambda: answers.append(text_of(stream(empty_fleet, tokens=150)))) for _ in range(10)
    ]
    for thread in threads:
        thread.start()
    with pytest.raises(openai.InternalServerError) as poison:
        text_of(stream(empty_fleet, "[[crash]]"))
    for thread in threads:
        thread.join()
    assert "not be tried again" in poison.value.message
    assert "[[crash]]" in empty_fleet.logs()  # only where that is wanted
    assert answers == [expected] * 10
    empty_fleet.until(
        lambda: sum(worker.get("engine_restarts", 0) for worker in empty_fleet.workers()) == 2,
        "both restarts to be in the registry",
    )
