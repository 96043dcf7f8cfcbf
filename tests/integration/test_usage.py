"""The usage of keys over real HTTP, by the official SDK, and on the command line."""

import json
import time
from collections.abc import Iterator

import openai
import pytest
from openai.types.admin.organization import UsageCompletionsResponse
from openai.types.admin.organization.usage_completions_response import (
    Data,
)
from openai.types.admin.organization.usage_completions_response import (
    DataResultOrganizationUsageCompletionsResult as Result,
)

from shared.protocol.usage import DAY
from tests.support.batches import chat_line, ended, submit
from tests.support.fleet import PATIENT, Fleet, fleet

ASK = {"model": "sim", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}


class Shared:
    """A fleet, the secrets of an admin and of two others, and the usage that was reported to the clients of these."""

    def __init__(self, running: Fleet) -> None:
        self.fleet = running
        self.admin = running.key("create", "--scope", "admin")
        self.secrets = [running.key("create", "--name", name) for name in ("first", "second")]
        self.ids = {key["name"]: key["id"] for key in json.loads(running.key("list", "--json"))}
        self.reported: list[list[tuple[int, int]]] = [[], []]

    def client(self, secret: str) -> openai.OpenAI:
        return self.fleet.client().with_options(api_key=secret, admin_api_key=secret)

    def ask(self, number: int, **fields: object) -> None:
        answer = self.client(self.secrets[number]).chat.completions.create(**ASK | fields)  # type: ignore[call-overload]
        self.reported[number].append((answer.usage.prompt_tokens, answer.usage.completion_tokens))

    def usage(self, secret: str, **query: object) -> UsageCompletionsResponse:
        now = int(time.time())
        return self.client(secret).admin.organization.usage.completions(
            **{"start_time": now - DAY, "end_time": now + DAY} | query  # type: ignore[arg-type]
        )

    def results(self, secret: str, **query: object) -> list[Result]:
        """The results of all days."""
        found = [result for bucket in self.usage(secret, **query).data for result in bucket.results]
        assert all(isinstance(result, Result) for result in found)
        return found  # type: ignore[return-value]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with fleet(tmp_path_factory.mktemp("usage"), lease=PATIENT) as running:
        shared = Shared(running)
        running.worker()
        running.api("--metrics-by-key")
        for _ in range(3):
            shared.ask(0)
        shared.ask(0, n=3)
        shared.ask(1, max_tokens=7)
        client = shared.client(shared.secrets[1])
        batch = submit(client, [chat_line("line", max_tokens=3)])
        assert ended(client, batch).status == "completed"
        running.until_counted()
        yield shared


def test_the_sums_of_a_key_are_those_that_its_clients_were_told(shared: Shared) -> None:
    by_key = {one.api_key_id: one for one in shared.results(shared.admin, group_by=["api_key_id"], batch=False)}
    assert by_key.keys() == {shared.ids["first"], shared.ids["second"]}
    for number, name in enumerate(("first", "second")):
        reported, counted = shared.reported[number], by_key[shared.ids[name]]
        assert counted.num_model_requests == len(reported)
        assert (counted.input_tokens, counted.output_tokens) == tuple(map(sum, zip(*reported, strict=True)))


def test_groups_and_filters(shared: Shared) -> None:
    everything = shared.results(shared.admin)
    assert [(one.model, one.api_key_id, one.batch, one.num_model_requests) for one in everything] == [
        (None, None, None, 6)
    ]
    by_batch = shared.results(shared.admin, group_by=["batch", "model"])
    assert [(one.batch, one.model, one.num_model_requests) for one in by_batch] == [(False, "sim", 5), (True, "sim", 1)]
    assert shared.results(shared.admin, models=["other"]) == []
    first = shared.results(shared.admin, api_key_ids=[shared.ids["first"]])
    assert [one.num_model_requests for one in first] == [4]


def test_a_key_without_the_scope_sees_its_own(shared: Shared) -> None:
    (own,) = shared.results(shared.secrets[0], group_by=["api_key_id"])
    assert own.api_key_id == shared.ids["first"]
    assert shared.results(shared.secrets[0], api_key_ids=[shared.ids["second"]]) == []


def test_pages_of_days(shared: Shared) -> None:
    today = int(time.time()) // DAY * DAY
    page, query = None, {"start_time": today - 9 * DAY, "limit": 4}
    found: list[Data] = []
    while page is not None or not found:
        answer = shared.usage(shared.admin, **query | ({"page": page} if page else {}))
        found += answer.data
        page = answer.next_page
        assert answer.has_more == (page is not None)
    assert [one.start_time for one in found] == [today - days * DAY for days in range(9, -1, -1)]
    assert sum(len(one.results) for one in found) == 1


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"bucket_width": "1h"}, "bucket_width"),
        ({"group_by": ["user_id"]}, "group_by"),
        ({"user_ids": ["x"]}, "user_ids"),
        ({"limit": 32}, "limit"),
        ({"page": "x"}, "page"),
    ],
)
def test_what_is_not_supported_is_named(shared: Shared, query: dict[str, object], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        shared.usage(shared.admin, **query)
    assert refused.value.param == param


def test_counters_by_key_where_they_are_asked_for(shared: Shared) -> None:
    metrics = shared.fleet.request("GET", "/metrics")[2].decode()
    first = shared.ids["first"]
    assert f'vinoqueue_key_requests_total{{key="{first}",model="sim"}} 4.0' in metrics


def test_a_key_that_has_used_up_its_budget_waits_for_its_renewal(shared: Shared) -> None:
    running = shared.fleet
    secret = running.key("create", "--name", "budget", "--tokens-per-day", "5")
    (key_id,) = (key["id"] for key in json.loads(running.key("list", "--json")) if key["name"] == "budget")
    client = shared.client(secret)
    running.until(lambda: running.request("GET", "/v1/models", None, {"api-key": secret})[0] == 200, "the key")
    client.chat.completions.create(**ASK)  # type: ignore[call-overload]
    running.until_counted()
    with pytest.raises(openai.RateLimitError) as refused:
        client.chat.completions.create(**ASK)  # type: ignore[call-overload]
    assert (refused.value.code, refused.value.type) == ("insufficient_quota", "insufficient_quota")
    assert "T00:00:00Z" in refused.value.message
    headers = refused.value.response.headers
    assert (0 < int(headers["retry-after"]) <= DAY, headers["x-should-retry"]) == (True, "false")
    anthropic = {"model": "sim", "max_tokens": 1, "messages": ASK["messages"]}
    status, _, body = running.request(
        "POST", "/v1/messages", json.dumps(anthropic), {"x-api-key": secret, "content-type": "application/json"}
    )
    assert (status, json.loads(body)["error"]["type"]) == (429, "rate_limit_error")

    batch = submit(client, [chat_line("line", max_tokens=3)])
    running.until(lambda: client.batches.retrieve(batch.id).status == "in_progress", "the batch to start")
    assert client.batches.retrieve(batch.id).request_counts.completed == 0  # type: ignore[union-attr]
    with running.redis() as store:
        store.delete(f"vinoqueue:spent:{key_id}")  # as at the renewal
    assert ended(client, batch).request_counts.completed == 1  # type: ignore[union-attr]
