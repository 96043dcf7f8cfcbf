"""API keys over HTTP, by the official SDK: who may manage them, and what the audit log says."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai.types.admin.organization import AdminAPIKeyCreateResponse
from openai.types.admin.organization.usage_completions_response import (
    DataResultOrganizationUsageCompletionsResult as Result,
)

from api.keys.record import LIMITS
from shared.protocol.usage import DAY
from shared.redis import keys
from tests.support.batches import chat_line, submit
from tests.support.fleet import PATIENT, Fleet, fleet
from tests.support.redis_types import command
from tests.support.store_rules import TESTER, rules_file, url

PATH = "/v1/organization/admin_api_keys"
PROJECTS = "/v1/organization/projects"


@pytest.fixture(scope="module")
def managed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fleet, openai.OpenAI]]:
    """A fleet that has keys, and a client with one of the scope ``admin``."""
    with fleet(tmp_path_factory.mktemp("managed"), lease=PATIENT) as running:
        secret = running.key("create", "--scope", "admin")
        running.api()
        yield running, running.client().with_options(api_key=secret, admin_api_key=secret)


def answer(running: Fleet, secret: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
    headers = {"api-key": secret, "content-type": "application/json"}
    status, _, content = running.request(method, path, None if body is None else json.dumps(body), headers)
    return status, json.loads(content)


def status(running: Fleet, secret: str, method: str, path: str = PATH, body: object = None) -> int:
    return answer(running, secret, method, path, body)[0]


def create(client: openai.OpenAI, name: str, **fields: object) -> AdminAPIKeyCreateResponse:
    return client.admin.organization.admin_api_keys.create(name=name, extra_body=fields)


def test_from_creation_to_deletion(managed: tuple[Fleet, openai.OpenAI]) -> None:
    running, client = managed
    keys = client.admin.organization.admin_api_keys
    made = create(client, "team", tokens_per_day=1000, models=["sim"], expires_in_seconds=3600)
    assert status(running, made.value, "GET", "/v1/models") == 200
    shown = keys.retrieve(made.id)
    assert (shown.name, shown.expires_at) == ("team", shown.created_at + 3600)
    assert shown.model_extra is not None
    assert shown.model_extra["tokens_per_day"] == 1000
    assert "value" not in shown.model_extra
    changed = client.post(
        f"/organization/admin_api_keys/{made.id}",
        cast_to=httpx.Response,
        body={"concurrency": 2, "tokens_per_day": None},
    ).json()
    assert (changed["concurrency"], changed["tokens_per_day"], changed["models"]) == (2, None, ["sim"])
    assert made.id in [key.id for key in keys.list()]
    assert keys.delete(made.id).deleted
    assert status(running, made.value, "GET", "/v1/models") == 401
    assert made.id not in [key.id for key in keys.list()]
    with pytest.raises(openai.NotFoundError):
        keys.retrieve(made.id)


def test_tokens_used_of_a_budget(managed: tuple[Fleet, openai.OpenAI]) -> None:
    running, client = managed
    made = create(client, "spender", tokens_per_month=100)
    with running.redis() as store:
        seconds, _ = store.time()
        store.hset(f"vinoqueue:spent:{made.id}", mapping={str(seconds // 86400): 7, str(seconds // 86400 - 31): 9})
    shown = client.admin.organization.admin_api_keys.retrieve(made.id).model_extra
    assert shown is not None
    assert (shown["tokens_used_today"], shown["tokens_used_this_month"]) == (7, 7)


def test_only_a_key_with_the_scope_manages_keys_and_teams_and_reads_the_audit_log(
    managed: tuple[Fleet, openai.OpenAI],
) -> None:
    running, client = managed
    plain = create(client, "plain")
    team = f"{PROJECTS}/{client.admin.organization.projects.create(name='team').id}"
    for method, path, body in (
        ("GET", PATH, None),
        ("POST", PATH, {"name": "more", "scopes": ["admin"]}),
        ("GET", f"{PATH}/{plain.id}", None),
        ("POST", f"{PATH}/{plain.id}", {"tokens_per_day": None}),
        ("DELETE", f"{PATH}/{plain.id}", None),
        ("GET", PROJECTS, None),
        ("POST", PROJECTS, {"name": "more"}),
        ("GET", team, None),
        ("POST", team, {"tokens_per_day": None}),
        ("POST", f"{team}/archive", None),
        ("GET", "/v1/organization/audit_logs", None),
    ):
        refused, error = answer(running, plain.value, method, path, body)
        assert (refused, error["error"]["code"]) == (403, "insufficient_permissions"), (method, path)
        assert status(running, "", method, path, body) == 401, (method, path)


def test_an_open_service_is_not_closed_by_a_request(session_fleet: Fleet) -> None:
    assert status(session_fleet, "", "POST", PATH, {"name": "mine", "scopes": ["admin"]}) == 403
    assert status(session_fleet, "", "GET") == 403


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "name"),
        ({"name": "x", "tokens_per_day": 0}, "tokens_per_day"),
        ({"name": "x", "scopes": ["root"]}, "scopes[0]"),
        ({"name": "x", "digest": "0"}, None),
    ],
)
def test_what_is_wrong_is_named(
    managed: tuple[Fleet, openai.OpenAI], body: dict[str, object], param: str | None
) -> None:
    _, client = managed
    with pytest.raises(openai.BadRequestError) as refused:
        client.post("/organization/admin_api_keys", cast_to=httpx.Response, body=body)
    assert refused.value.param == param


def test_the_audit_log_has_what_was_done_over_http(managed: tuple[Fleet, openai.OpenAI]) -> None:
    running, client = managed
    made = create(client, "audited")
    client.admin.organization.admin_api_keys.delete(made.id)
    batch = submit(client, [chat_line("line")])
    client.batches.cancel(batch.id)
    with running.redis() as store:
        log = [
            tuple(fields[field].decode() for field in (b"action", b"target", b"actor"))
            for _, fields in store.xrange("vinoqueue:audit")
        ]
    (admin,) = (target for action, target, actor in log if actor.startswith("cli "))
    assert log[-3:] == [
        ("api_key.created", made.id, f"key {admin}"),
        ("api_key.deleted", made.id, f"key {admin}"),
        ("batch.cancelled", batch.id, f"key {admin}"),
    ]


def test_the_audit_log_in_openais_form(managed: tuple[Fleet, openai.OpenAI]) -> None:
    _, client = managed
    logs = client.admin.organization.audit_logs
    made = create(client, "logged", tokens_per_day=5)
    client.post(f"/organization/admin_api_keys/{made.id}", cast_to=httpx.Response, body={"concurrency": 1})
    client.admin.organization.admin_api_keys.delete(made.id)
    deleted, updated, created = logs.list(resource_ids=[made.id], limit=2)
    assert [entry.type for entry in (deleted, updated, created)] == [
        "api_key.deleted",
        "api_key.updated",
        "api_key.created",
    ]
    assert created.api_key_created is not None
    assert created.api_key_created.id == made.id
    assert created.actor is not None
    assert created.actor.api_key is not None
    admin = created.actor.api_key.id
    assert admin is not None
    assert [*logs.list(resource_ids=[made.id], event_types=["api_key.updated"], actor_ids=[admin])] == [updated]
    assert logs.list(resource_ids=[made.id], before=created.id, limit=1).data == [updated]
    assert logs.list(resource_ids=[made.id], effective_at={"gt": deleted.effective_at}).data == []
    assert len(logs.list(resource_ids=[made.id], effective_at={"gte": created.effective_at}).data) == 3


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("audit_logs?event_types[]=login.failed", "event_types"),
        ("audit_logs?actor_emails[]=a@b.c", "actor_emails"),
        ("audit_logs?effective_at[gt]=x", "effective_at.gt"),
        ("audit_logs?after=audit_log-x", "after"),
        ("audit_logs?after=audit_log-0-0", "after"),
        (f"audit_logs?after=audit_log-{'9' * 20}-1", "after"),
        (f"usage/completions?start_time=0&page=page_{'1' * 5000}", "page"),
    ],
)
def test_what_a_list_has_not_is_refused_by_name(managed: tuple[Fleet, openai.OpenAI], query: str, param: str) -> None:
    _, client = managed
    with pytest.raises(openai.BadRequestError) as refused:
        client.get(f"/organization/{query}", cast_to=httpx.Response)
    assert refused.value.param == param


def test_replicas_change_keys_where_the_stores_rules_allow_it(tmp_path: Path) -> None:
    with fleet(tmp_path, "--aclfile", rules_file(tmp_path), store_user=TESTER) as running:
        secret = running.key("create", "--scope", "admin")
        running.api("--redis-url", url(running.store, "api"))
        client = running.client().with_options(api_key=secret, admin_api_key=secret)
        assert len([*client.admin.organization.admin_api_keys.list()]) == 1
        with pytest.raises(openai.PermissionDeniedError, match="~vinoqueue:keys"):
            create(client, "team")
        command(running.redis(), "ACL", "SETUSER", "vinoqueue-api", "~vinoqueue:keys", "~vinoqueue:teams")
        assert create(client, "team").value


def test_a_team_limits_its_keys_and_counts_what_they_use(managed: tuple[Fleet, openai.OpenAI]) -> None:
    running, client = managed
    running.worker()
    projects = client.admin.organization.projects
    path = f"/organization/projects/{projects.create(name='physics').id}"
    team = client.post(path, cast_to=httpx.Response, body={"name": "Physics", "requests_per_minute": 2}).json()
    assert (team["name"], team["requests_per_minute"], team["status"]) == ("Physics", 2, "active")
    members = [create(client, name, project_id=team["id"]) for name in ("anna", "ben", "carl")]
    for member in members[:2]:
        chat(running, member.value)
    with pytest.raises(openai.RateLimitError, match="team 'Physics' of this API key: 2 requests per minute"):
        chat(running, members[2].value)

    def used() -> bool:
        start = int(time.time()) - DAY
        page = client.admin.organization.usage.completions(start_time=start, group_by=["project_id"])
        found = [result for bucket in page.data for result in bucket.results]
        return [
            one.num_model_requests for one in found if isinstance(one, Result) and one.project_id == team["id"]
        ] == [2]

    running.until(used, "both requests to count for the team")
    assert team["id"] in {one.id for one in projects.list()}
    assert projects.archive(team["id"]).status == "archived"
    assert team["id"] not in {one.id for one in projects.list()}
    assert team["id"] in {one.id for one in projects.list(include_archived=True)}
    assert status(running, members[0].value, "GET", "/v1/models") == 401
    with pytest.raises(openai.BadRequestError, match="There is no team"):
        create(client, "dora", project_id=team["id"])


def chat(running: Fleet, secret: str) -> None:
    client = running.client().with_options(api_key=secret, max_retries=0)
    client.chat.completions.create(model="sim", messages=[{"role": "user", "content": "hi"}], max_tokens=3)


BEYOND = {
    "queue_timeout": (0, -1, 1e9 + 1),
    "weight": (0, 101),
    **{name: (0, 10**15 + 1) for name in LIMITS if name not in ("queue_timeout", "weight")},
}


def test_a_value_beyond_a_bound_is_refused_by_its_field(managed: tuple[Fleet, openai.OpenAI]) -> None:
    running, client = managed
    key, team = create(client, "bounds").id, client.admin.organization.projects.create(name="bounds").id
    for name, values in BEYOND.items():
        for value in values:
            for path, more in ((PATH, {"name": "b"}), (f"{PATH}/{key}", {}), (PROJECTS, {"name": "b"})):
                code, problem = answer(running, client.api_key, "POST", path, {name: value, **more})
                assert (code, name in problem["error"]["message"]) == (400, True), (path, name, value, problem)
            code, problem = answer(running, client.api_key, "POST", f"{PROJECTS}/{team}", {name: value})
            assert (code, name in problem["error"]["message"]) == (400, True), (name, value, problem)
    assert key in [one.id for one in client.admin.organization.admin_api_keys.list()]


def test_an_unreadable_key_is_named_repaired_and_revoked(managed: tuple[Fleet, openai.OpenAI]) -> None:
    running, client = managed
    for repair in (True, False):
        key = create(client, "damaged").id
        with running.redis() as store:
            record = json.loads(store.hget(keys.API_KEYS, key))
            store.hset(keys.API_KEYS, key, json.dumps(record | {"queue_timeout": 0}))
        code, problem = answer(running, client.api_key, "GET", f"{PATH}/{key}")
        assert (code, problem["error"]["code"]) == (400, "unreadable_record")
        assert "'queue_timeout' is invalid" in problem["error"]["message"]
        if repair:
            assert answer(running, client.api_key, "POST", f"{PATH}/{key}", {"queue_timeout": None})[0] == 200
        assert answer(running, client.api_key, "DELETE", f"{PATH}/{key}")[0] == 200
