"""What operators find in the logs: a line for each request, and each event of the fleet once."""

import fcntl
import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

from tests.support.fleet import PATIENT, SIMULATED, Fleet, execute, fleet
from tests.support.fleet_fixture import fleet_fixture
from tests.support.processes import family

BODY = {"model": "sim", "messages": [{"role": "user", "content": "a secret prompt"}], "max_tokens": 5}


KEY = {"authorization": "Bearer a-long-secret-of-the-environment"}


logged = fleet_fixture(*SIMULATED[:-1], "0.02", api=("--api-keys", "a-long-secret-of-the-environment"))
"""A slow worker, and a replica that asks for a key."""


def lines_of(fleet: Fleet, *ids: str) -> list[dict[str, str]]:
    """The fields of the request lines with these ids, once all are there."""
    fleet.until(lambda: {line["id"] for line in requests(fleet)} >= {*ids}, "the lines")
    return [line for line in requests(fleet) if line["id"] in ids]


def requests(fleet: Fleet) -> list[dict[str, str]]:
    """The fields of the API's request lines."""
    text = api_log(fleet).read_text()
    found = re.findall(r" INFO +api\.request_log: request (.*)$", text, re.MULTILINE)
    return [dict(re.findall(r'(\w+)=("(?:[^"\\]|\\.)*"|\S+)', line)) for line in found]


def api_log(fleet: Fleet) -> Path:
    return next(process.log for process in fleet.processes if process.arguments[0] == "api")


def post(fleet: Fleet, body: object, **headers: str) -> int:
    all_headers = {"content-type": "application/json", **headers}
    return fleet.request("POST", "/v1/chat/completions", json.dumps(body), all_headers)[0]


def test_each_request_has_one_line(logged: Fleet) -> None:
    fleet = logged
    assert post(fleet, BODY, **KEY, **{"x-request-id": "first"}) == 200
    assert post(fleet, BODY | {"stream": True}, **KEY, **{"x-request-id": "second"}) == 200
    assert post(fleet, BODY | {"temperature": "hot"}, **KEY, **{"x-request-id": "third"}) == 400
    assert post(fleet, BODY | {"model": "a b\n2026 INFO forged"}, **KEY, **{"x-request-id": "fourth"}) == 404
    assert post(fleet, BODY, authorization="Bearer wrong", **{"x-request-id": "fifth"}) == 401
    assert fleet.status("/live") == 200
    first, second, third, fourth, fifth = lines_of(fleet, "first", "second", "third", "fourth", "fifth")
    numbers = {"prompt_tokens", "cached_tokens", "completion_tokens", "first_token_ms", "total_ms"}
    numbers |= {"queue_ms", "prompt_ms", "prefill_ms"}
    (worker,) = fleet.workers()
    for line, name, stream in ((first, "first", "false"), (second, "second", "true")):
        assert {field: line[field] for field in line.keys() - numbers - {"job", "key"}} == {
            "workers": worker["id"],
            "id": name,
            "method": "POST",
            "path": "/v1/chat/completions",
            "status": "200",
            "outcome": "length",
            "model": "sim",
            "stream": stream,
            "key_name": "environment",
        }
        assert numbers <= line.keys()
        assert line["key"].startswith("env-")
        assert line["completion_tokens"] == "5"
        assert int(line["first_token_ms"]) <= int(line["total_ms"])
    assert (third["id"], third["status"], third["outcome"]) == ("third", "400", "invalid_request")
    assert (fourth["id"], fourth["status"], fourth["outcome"]) == ("fourth", "404", "model_not_found")
    assert "forged" not in re.sub(r'model="[^\n]*"', "", api_log(fleet).read_text())
    assert "secret prompt" not in fleet.logs()
    assert (fifth["status"], fifth["outcome"]) == ("401", "unauthorized")
    assert "key" not in fifth
    assert "a-long-secret" not in fleet.logs()


def test_the_workers_of_a_request_are_named_where_asked_for(empty_fleet: Fleet) -> None:
    fleet = empty_fleet
    first = fleet.worker(*SIMULATED[:-1], "0.05", "--worker-id", "first", "--log-level", "debug")
    fleet.api()
    headers = {"content-type": "application/json", "x-vinoqueue-worker": "true"}
    for stream in (False, True):
        body = json.dumps(BODY | {"stream": stream})
        assert fleet.request("POST", "/v1/chat/completions", body, headers)[1]["x-vinoqueue-worker"] == "first"
        asked_not = fleet.request("POST", "/v1/chat/completions", body)[1]
        assert "x-vinoqueue-worker" not in asked_not

    # A request that moves has two workers, and the log says so once.
    replies: list[dict[str, str]] = []
    long = json.dumps({"model": "sim", "messages": [{"role": "user", "content": "[[tokens 400]]"}]})
    client = threading.Thread(
        target=lambda: replies.append(fleet.request("POST", "/v1/chat/completions", long, headers)[1])
    )
    client.start()
    fleet.until(lambda: any(one.get("tokens", 0) > 25 for one in fleet.workers()), "the request to have tokens")
    first.kill()
    fleet.worker(*SIMULATED, "--worker-id", "second")
    client.join()
    assert replies[0]["x-vinoqueue-worker"] == "first, second"
    fleet.until(lambda: len(requests(fleet)) == 5, "the lines")
    assert [line["workers"] for line in requests(fleet)] == ["first"] * 4 + ['"first,second"']

    fleet.until(lambda: "is gone" in api_log(fleet).read_text(), "the death to be noticed")
    metrics = fleet.request("GET", "/metrics")[2].decode()
    assert 'vinoqueue_migrations_total{model="sim",reason="worker_lost"} 1.0' in metrics
    everything = fleet.logs()
    assert len(re.findall(r"WARNING .*worker \S+ of model sim is gone", everything)) == 1
    assert len(re.findall(r"WARNING .*1 jobs lost their worker and wait for another: \S+", everything)) == 1
    assert len(re.findall(r"INFO .*job \S+ continues here after \d+ tokens", everything)) == 1

    jobs = re.findall(r" DEBUG +worker\.job_log: job (.*)$", first.log.read_text(), re.MULTILINE)
    assert len(jobs) == 4  # at debug, a worker logs one line for each job that ends here
    assert re.fullmatch(
        r"job=\w+ attempt=1 outcome=length prompt_tokens=\d+ completion_tokens=5 first_output_ms=\d+ total_ms=\d+",
        jobs[0],
    )


def test_json_logs_have_one_object_per_line(empty_fleet: Fleet) -> None:
    """Those of a native crash in a subprocess, and of warnings before the log is configured, too."""
    environment = {"VINOQUEUE_COLOUR_SCHEME": "1", "PYTHONFAULTHANDLER": "1"}
    worker = empty_fleet.start("worker", *SIMULATED, "--log-format", "json", **environment)
    log = empty_fleet.api("--log-format", "json").log
    assert post(empty_fleet, BODY | {"model": "a b\n{}"}, **{"x-request-id": "first"}) == 404

    def lines() -> list[dict[str, Any]]:
        found = [json.loads(line) for line in log.read_text().splitlines()]
        return [line for line in found if line["logger"] == "api.request_log"]

    empty_fleet.until(lines, "the line")
    (refused,) = lines()
    assert (refused["level"], refused["message"], refused["id"]) == ("info", "request", "first")
    assert (refused["outcome"], refused["status"]) == ("model_not_found", 404)
    empty_fleet.until(lambda: empty_fleet.workers("serving"), "the worker to serve")
    for pid in family(worker.popen.pid)[1:]:
        os.kill(pid, signal.SIGABRT)
    empty_fleet.until(lambda: "Current thread" in worker.log.read_text(), "the crash to be logged")
    worker.stop()
    messages = [json.loads(line)["message"] for line in worker.log.read_text().splitlines()]
    assert "VINOQUEUE_COLOUR_SCHEME is not a setting and has no effect." in messages
    assert "engine process: Fatal Python error: Aborted" in messages


def read(reader: int) -> bytes:
    with os.fdopen(reader, "rb") as pipe:
        return pipe.read()


def test_a_log_that_nobody_reads_stops_no_process(tmp_path: Path) -> None:
    readers = []

    def launch(arguments: Sequence[str], output: IO[bytes], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        reader, writer = os.pipe()
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        readers.append(reader)
        with os.fdopen(writer, "wb") as pipe:
            return execute(arguments, pipe, environment)

    with fleet(tmp_path, lease=PATIENT, launch=launch) as running:
        running.worker(*SIMULATED, "--log-level", "debug")
        running.api("--log-level", "debug")
        for number in range(40):  # lines of 300 bytes, in replica and worker
            assert post(running, BODY, **{"x-request-id": f"request-{number}"}) == 200
        metrics = running.request("GET", "/metrics")[2].decode()
        assert "vinoqueue_log_lines_dropped_total 0.0" in metrics  # they wait
        pool = ThreadPoolExecutor(len(readers))
        texts = [pool.submit(read, reader) for reader in readers]
    log = b"".join(text.result() for text in texts)
    assert {number for number in range(40) if f"id=request-{number} ".encode() in log} == {*range(40)}


def test_a_client_that_leaves_is_an_aborted_request(logged: Fleet) -> None:
    client = logged.client().with_options(api_key="a-long-secret-of-the-environment")
    stream = client.chat.completions.create(
        model="sim",
        messages=[{"role": "user", "content": "[[tokens 1000]]"}],
        stream=True,
        extra_headers={"x-request-id": "left"},
    )
    next(iter(stream))
    stream.close()
    assert [(line["outcome"], line["status"]) for line in lines_of(logged, "left")] == [("aborted", "200")]
