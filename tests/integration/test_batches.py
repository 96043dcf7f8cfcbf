"""Batches through the official SDK, from their creation to their result files."""

import json
from pathlib import Path
from typing import Any, Final

import openai
import pytest
from click.testing import CliRunner, Result

from cli.batch.commands import batch as batch_command
from cli.monitor.status import read_snapshot
from tests.support.batches import chat_line, ended, results, submit
from tests.support.fleet import Fleet
from tests.support.fleet_fixture import fleet_fixture

CHAT: Final = "/v1/chat/completions"
PROMPTS: Final[dict[str, dict[str, Any]]] = {
    CHAT: {"messages": [{"role": "user", "content": "hello"}]},
    "/v1/completions": {"prompt": "hello"},
    "/v1/responses": {"input": "hello"},
}
"""The endpoints that are served, with what a request needs besides its model."""


target = fleet_fixture(api=("--api-keys", "none,other"))
"""One replica with keys, and a worker."""


@pytest.fixture
def client(target: Fleet) -> openai.OpenAI:
    return target.client()


def test_a_batch_from_beginning_to_end(client: openai.OpenAI) -> None:
    lines = [chat_line(f"line-{number}", f"question {number}") for number in range(60)]
    lines[7] = chat_line("line-7", temperature=9)
    lines[9] = chat_line("line-9", stream=True)
    lines[11] = chat_line("line-11", model="nobody")
    made = submit(
        client,
        lines,
        metadata={"topic": "tests"},
        output_expires_after={"anchor": "created_at", "seconds": 7200},
    )
    assert (made.object, made.status, made.endpoint, made.completion_window) == ("batch", "validating", CHAT, "24h")
    assert made.expires_at == made.created_at + 86_400
    batch = ended(client, made)
    assert batch.status == "completed"
    assert batch.metadata == {"topic": "tests"}
    assert batch.request_counts is not None
    assert batch.request_counts.to_dict() == {"total": 60, "completed": 57, "failed": 3}
    times = [batch.created_at, batch.in_progress_at, batch.finalizing_at, batch.completed_at]
    assert times == sorted(time for time in times if time is not None)
    assert {batch.failed_at, batch.cancelled_at, batch.expired_at} == {None}
    assert batch.errors is None
    assert batch.usage is not None
    assert batch.usage.output_tokens == 57 * 8

    output = results(client, batch.output_file_id)
    assert [line["custom_id"] for line in output] == [f"line-{n}" for n in range(60) if n not in (7, 9, 11)]
    first = output[0]
    assert first.keys() == {"id", "custom_id", "response", "error"}
    assert first["response"].keys() == {"status_code", "request_id", "body"}
    assert (first["response"]["status_code"], first["error"]) == (200, None)
    assert first["response"]["body"]["object"] == "chat.completion"
    assert first["response"]["body"]["service_tier"] == "default"
    errors = results(client, batch.error_file_id)
    assert [(line["custom_id"], line["response"]["status_code"]) for line in errors] == [
        ("line-7", 400),
        ("line-9", 400),
        ("line-11", 404),
    ]
    assert errors[0]["response"]["body"]["error"]["param"] == "temperature"
    assert len({line["id"] for line in output + errors}) == 60
    for file_id in (batch.output_file_id, batch.error_file_id):
        file = client.files.retrieve(file_id or "")
        assert (file.purpose, (file.expires_at or 0) - file.created_at) == ("batch_output", 7200)
        assert len(client.files.content(file.id).read()) == file.bytes


def test_plain_completions_and_a_blank_last_line(client: openai.OpenAI) -> None:
    line = b'{"custom_id": "1", "method": "POST", "url": "/v1/completions", "body": {"model": "sim", "prompt": "a"}}'
    batch = ended(client, submit(client, line + b"\r\n\r\n", endpoint="/v1/completions"))
    assert (batch.status, batch.model, batch.error_file_id) == ("completed", "sim", None)
    (result,) = results(client, batch.output_file_id)
    assert result["response"]["body"]["object"] == "text_completion"


def test_a_file_with_a_byte_order_mark(client: openai.OpenAI) -> None:
    content = b"\xef\xbb\xbf" + b"\r\n".join(json.dumps(chat_line(name)).encode() for name in "ab")
    batch = ended(client, submit(client, content))
    assert batch.status == "completed", batch
    assert [line["custom_id"] for line in results(client, batch.output_file_id)] == ["a", "b"]


def test_responses(client: openai.OpenAI) -> None:
    bodies = [
        {"model": "sim", "input": "hello", "max_output_tokens": 16},
        {"model": "sim", "input": 7},
        {"model": "sim", "input": "hello", "background": True},
    ]
    lines = [
        {"custom_id": str(number), "method": "POST", "url": "/v1/responses", "body": body}
        for number, body in enumerate(bodies)
    ]
    batch = ended(client, submit(client, lines, endpoint="/v1/responses"))
    (result,) = results(client, batch.output_file_id)
    body = result["response"]["body"]
    assert (result["custom_id"], body["object"], body["service_tier"]) == ("0", "response", "default")
    assert body["store"] is False
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(body["id"])
    refused = [line["response"] for line in results(client, batch.error_file_id)]
    assert [(one["status_code"], one["body"]["error"]["param"]) for one in refused] == [
        (400, "input"),
        (400, "background"),
    ]


def line_to(url: str, custom_id: str, **fields: Any) -> dict[str, Any]:
    """A line with a request that ``url`` serves, but for ``fields``."""
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": {"model": "sim", **PROMPTS[url], **fields}}


@pytest.mark.parametrize("url", PROMPTS)
def test_a_file_with_errors_fails_with_their_lines(client: openai.OpenAI, url: str) -> None:
    whole = line_to(url, "e")
    lines = [
        line_to(url, "a"),
        "{",
        line_to(url, "a"),
        line_to(url, "c") | {"url": next(other for other in PROMPTS if other != url)},
        line_to(url, "d") | {"method": "GET"},
        *({name: value for name, value in whole.items() if name != left_out} for left_out in whole),
        line_to(url, "f") | {"custom_id": 7},
        line_to(url, "g") | {"body": []},
        line_to(url, "h") | {"url": "/v1/moderations"},
        "[]",
        line_to(url, ""),
    ]
    content = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    batch = ended(client, submit(client, content.encode(), endpoint=url))
    assert batch.status == "failed"
    assert batch.failed_at is not None
    assert batch.errors is not None
    assert batch.errors.object == "list"
    assert [(error.line, error.code, error.param) for error in batch.errors.data or []] == [
        (2, "invalid_json_line", None),
        (3, "duplicate_custom_id", "custom_id"),
        (4, "mismatched_url", "url"),
        (5, "invalid_method", "method"),
        *((6 + place, "missing_required_parameter", name) for place, name in enumerate(whole)),
        (10, "invalid_type", "custom_id"),
        (11, "invalid_type", "body"),
        (12, "mismatched_url", "url"),
        (13, "invalid_json_line", None),
        (14, "invalid_value", "custom_id"),
    ]
    assert (batch.output_file_id, batch.error_file_id) == (None, None)
    empty = ended(client, submit(client, b"\n"))
    assert [error.code for error in (empty.errors and empty.errors.data) or []] == ["empty_file"]


@pytest.mark.parametrize("url", PROMPTS)
def test_requests_that_are_refused_are_in_the_error_file(client: openai.OpenAI, url: str) -> None:
    refused: dict[str, tuple[dict[str, Any], int, str | None, str | None]] = {
        "stream": ({"stream": True}, 400, "stream", "unsupported_value"),
        "model": ({"model": "nobody"}, 404, None, "model_not_found"),
        "no model": ({"model": None}, 400, "model", None),
        "type": ({"temperature": "hot"}, 400, "temperature", "invalid_type"),
        "value": ({"temperature": 9}, 400, "temperature", "decimal_above_max_value"),
        "unknown": ({"surprise": 1}, 400, "surprise" if url == "/v1/responses" else None, None),
        "prompt": ({next(iter(PROMPTS[url])): None}, 400, next(iter(PROMPTS[url])), None),
    }
    lines = [line_to(url, "good"), *(line_to(url, name, **case[0]) for name, case in refused.items())]
    batch = ended(client, submit(client, lines, endpoint=url))
    assert batch.status == "completed"
    assert [line["custom_id"] for line in results(client, batch.output_file_id)] == ["good"]
    errors = results(client, batch.error_file_id)
    assert [line["custom_id"] for line in errors] == [*refused]
    for line, (_, status, param, code) in zip(errors, refused.values(), strict=True):
        assert (line["error"], line["response"]["status_code"]) == (None, status)
        error = line["response"]["body"]["error"]
        assert error.keys() == {"message", "type", "param", "code"}
        assert (error["param"], error["type"]) == (param, "invalid_request_error"), error
        assert code in (None, error["code"]), error


def test_what_cannot_be_created(client: openai.OpenAI) -> None:
    file = client.files.create(file=("a", b"x"), purpose="batch").id
    for fields, param in (
        ({"endpoint": "/v1/moderations"}, "endpoint"),
        ({"endpoint": "/v1/other"}, "endpoint"),
        ({"completion_window": "48h"}, "completion_window"),
        ({"input_file_id": 7}, "input_file_id"),
        ({"metadata": {"a": "b" * 600}}, "metadata.a"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 60}}, "output_expires_after.seconds"),
    ):
        asked = {"input_file_id": file, "endpoint": CHAT, "completion_window": "24h"} | fields
        with pytest.raises(openai.BadRequestError) as refusal:
            client.post("/batches", body=asked, cast_to=object)
        assert refusal.value.param == param
    with pytest.raises(openai.NotFoundError, match="file-0"):
        client.batches.create(input_file_id="file-0", endpoint=CHAT, completion_window="24h")
    other = client.with_options(api_key="other")
    with pytest.raises(openai.NotFoundError):
        other.batches.create(input_file_id=file, endpoint=CHAT, completion_window="24h")


def test_a_cancelled_batch_has_a_result_for_each_line(client: openai.OpenAI) -> None:
    lines = [chat_line(f"{number}", "[[tokens 400]]", max_tokens=400) for number in range(200)]
    made = submit(client, lines)
    with pytest.raises(openai.NotFoundError):
        client.with_options(api_key="other").batches.cancel(made.id)
    cancelling = client.batches.cancel(made.id)
    assert cancelling.status == "cancelling"
    assert cancelling.cancelling_at is not None
    batch = ended(client, made)
    assert (batch.status, batch.cancelling_at) == ("cancelled", cancelling.cancelling_at)
    assert batch.cancelled_at is not None
    output, errors = results(client, batch.output_file_id), results(client, batch.error_file_id)
    assert {line["error"]["code"] for line in errors} == {"batch_cancelled"}
    assert {line["custom_id"] for line in output + errors} == {f"{number}" for number in range(200)}
    assert len(output + errors) == 200
    with pytest.raises(openai.BadRequestError, match="cancelled"):
        client.batches.cancel(made.id)


def test_lists_of_batches(client: openai.OpenAI, target: Fleet) -> None:
    other = client.with_options(api_key="other")
    lines = [chat_line("1", "[[tokens 8000]]", max_tokens=8000)]
    first, second = submit(other, lines), submit(other, lines)
    assert [batch.id for batch in other.batches.list(limit=1)] == [second.id, first.id]
    assert first.id not in [batch.id for batch in client.batches.list()]
    shown = read_snapshot(target.url).batches
    assert shown is not None
    assert {batch.id for batch in shown} == {first.id, second.id}
    with pytest.raises(openai.BadRequestError, match="'after'"):
        other.batches.list(after="batch_0")
    for batch in (first, second):
        other.batches.cancel(batch.id)
        ended(other, batch)
    assert not read_snapshot(target.url).batches
    target.until(lambda: all(worker.get("used", 0) == 0 for worker in target.workers()), "all slots to be free")


def test_other_requests_preempt_lines_whose_results_stay_the_same(client: openai.OpenAI, target: Fleet) -> None:
    lines = [chat_line(f"{number}", f"[[tokens 60]] {number}", max_tokens=60) for number in range(150)]

    def texts(batch: openai.types.Batch) -> list[str]:
        assert batch.request_counts is not None
        assert batch.request_counts.completed == 150
        assert batch.usage is not None
        assert batch.usage.output_tokens == 150 * 60
        return [line["response"]["body"]["choices"][0]["message"]["content"] for line in
                results(client, batch.output_file_id)]  # fmt: skip

    undisturbed = texts(ended(client, submit(client, lines)))
    made = submit(client, lines)
    messages: Any = [{"role": "user", "content": "hello"}]

    def preempted() -> bool:
        client.chat.completions.create(model="sim", messages=messages, max_tokens=2)
        return any(one.get("preemptions", 0) for one in target.workers())

    target.until(preempted, "a request to preempt lines")
    assert texts(ended(client, made)) == undisturbed
    assert b"vinoqueue_worker_preemptions_total" in target.request("GET", "/metrics")[2]


def test_the_input_of_an_unfinished_batch_is_not_deleted(client: openai.OpenAI) -> None:
    made = submit(client, [chat_line("1", max_tokens=2000)])
    with pytest.raises(openai.BadRequestError, match=f"unfinished batch {made.id}"):
        client.files.delete(made.input_file_id)
    client.batches.cancel(made.id)
    ended(client, made)
    assert client.files.delete(made.input_file_id).deleted


def test_metrics(target: Fleet, client: openai.OpenAI) -> None:
    ended(client, submit(client, [chat_line("1")]))
    page = target.request("GET", "/metrics")[2].decode()
    assert 'vinoqueue_batch_lines_total{outcome="completed"}' in page
    assert 'vinoqueue_ended_batches_total{status="completed"}' in page
    assert "vinoqueue_unfinished_batches" in page


def run(target: Fleet, *arguments: str) -> Result:
    environment = {"OPENAI_BASE_URL": f"http://127.0.0.1:{target.port}/v1", "OPENAI_API_KEY": "none"}
    return CliRunner(env=environment).invoke(batch_command, arguments)


def test_the_command_line(target: Fleet, tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    lines = [chat_line("1"), chat_line("2", temperature=9), chat_line("3")]
    file.write_text("\n".join(map(json.dumps, lines)))
    made = run(target, "submit", str(file))
    assert made.exit_code == 0, made.stderr
    batch_id = made.stdout.strip()
    fetched = run(target, "results", str(file))
    assert fetched.exit_code == 0, fetched.stderr
    output, errors = tmp_path / "in.output.jsonl", tmp_path / "in.errors.jsonl"
    assert fetched.stdout.split() == [str(output), str(errors)]
    assert [json.loads(line)["custom_id"] for line in output.read_text().splitlines()] == ["1", "3"]
    assert [json.loads(line)["custom_id"] for line in errors.read_text().splitlines()] == ["2"]
    for name in (str(file), batch_id):
        shown = run(target, "status", name)
        assert shown.stdout == f"{batch_id}  completed  2 completed, 1 failed of 3\n"
    assert "Cannot cancel" in run(target, "cancel", batch_id).stderr
    file.write_text("{}\n")
    assert "is no request" in run(target, "submit", str(file)).stderr
    assert "No batch was submitted" in run(target, "status", str(file)).stderr
    lines[1] = chat_line("1")
    file.write_text("\n".join(map(json.dumps, lines)))
    failed = run(target, "submit", "--wait", str(file))
    assert failed.exit_code == 1
    assert "line 2: The 'custom_id' '1' is used by an earlier line." in failed.stderr


def test_a_batch_request_leaves_a_workers_only_slot_to_a_chat_and_keeps_its_tokens(empty_fleet: Fleet) -> None:
    running = empty_fleet
    running.worker("--engine", "simulated", "--model", "sim", "--max-batch", "1", "--sim-step", "0.005")
    running.api()
    client = running.client()
    batch = submit(client, [chat_line("long", "[[tokens 1500]]", max_tokens=1500)])
    running.until(lambda: read_snapshot(running.url).queues[0].in_flight == 1, "the batch request to run")
    client.chat.completions.create(model="sim", messages=[{"role": "user", "content": "hello"}])
    assert client.batches.retrieve(batch.id).status == "in_progress"
    (line,) = results(client, ended(client, batch).output_file_id)
    page = running.request("GET", "/metrics")[2].decode()
    assert line["response"]["body"]["usage"]["completion_tokens"] == 1500
    assert 'vinoqueue_migrations_total{model="sim",reason="preempted"} 1.0' in page
