"""Names and messages from the service cannot control the terminal, and results of a batch say why requests failed."""

import asyncio
import io
import json
import re
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from fakeredis import FakeAsyncRedis, FakeServer

from api.keys import ApiKey, Team
from api.keys.store import create, create_team
from cli.base.api_client import ApiClient
from cli.base.output import echo
from cli.batch.commands import _described, _end, _reasons
from cli.main import main
from cli.up.progress import StartProgress
from shared.protocol.registry import WorkerInfo
from shared.protocol.usage import DAY, UsageCounts, account_of
from shared.redis import keys
from tests.support.redis_types import awaitable

NAME = "tiny\x1b[2J"


class Reply(io.BytesIO):
    """A response of the API."""

    status = 404


def batch(**counts: int) -> dict[str, Any]:
    error = {"line": 1, "message": f"no model {NAME}"}
    return {"id": "batch-1", "status": "completed", "request_counts": counts, "errors": {"data": [error]}}


def test_messages_of_the_api_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = HTTPConnection("127.0.0.1")
    monkeypatch.setattr(connection, "request", lambda *_: None)
    reply = Reply(json.dumps({"error": {"message": f"no {NAME}"}}).encode())
    monkeypatch.setattr(connection, "getresponse", lambda: reply)
    with pytest.raises(click.ClickException) as refused:
        ApiClient("http://127.0.0.1:1", "").send(connection, "GET", "/v1/models")
    assert refused.value.message == r"no tiny\x1b[2J"


def test_states_of_batches_are_escaped() -> None:
    described = _described(batch(total=1, completed=1, failed=0))
    assert r"line 1: no model tiny\x1b[2J" in described
    assert len(described.splitlines()) == 2


def test_models_of_up_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    worker = WorkerInfo(
        id="w", host="h", pid=1, model=NAME, status="loading", engine="simulated", device="CPU", fingerprint="",
        started=0.0, slots=1,
    )  # fmt: skip
    with StartProgress() as progress:
        progress.loading(worker)
        progress.serving(worker.pid, {worker.model: worker.kinds}, "http://127.0.0.1:1", "", web=False)
    written = capsys.readouterr().out
    assert "\x1b" not in written
    assert r"serves tiny\x1b[2J at" in written


HOSTILE = "a\x1b]0;b\x07\x9b2J\x7f\r"


@pytest.mark.parametrize(
    "arguments",
    [
        ["key", "update", "KEY", "--concurrency", "2"],
        ["key", "list"],
        ["key", "list", "--json"],
        ["key", "create", "--toml", "--name", HOSTILE],
        ["team", "update", "TEAM", "--concurrency", "2"],
        ["team", "list"],
        ["team", "list", "--json"],
        ["audit"],
        ["audit", "--json"],
        ["usage", "--by", "key"],
        ["usage", "--by", "key", "--csv"],
        ["key", "revoke", HOSTILE],
        ["key", "update", "KEY", f"--{HOSTILE}"],
        ["key", "create", "--queue-timeout", HOSTILE],
        [HOSTILE],
        ["worker", "drain", HOSTILE],
        ["model", "load", HOSTILE],
        ["batch", "status", HOSTILE],
    ],
    ids=lambda arguments: " ".join(arguments).replace(HOSTILE, "HOSTILE"),
)
def test_no_command_prints_control_characters(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    server = FakeServer()

    async def fill() -> tuple[str, str]:
        redis = FakeAsyncRedis(server=server)
        key, _ = await create(redis, ApiKey(id="-", digest="0" * 64, name=HOSTILE, models=(HOSTILE,)), by=HOSTILE)
        team = await create_team(redis, Team(id="-", name=HOSTILE), by=HOSTILE)
        field = f"{account_of(key.id, team.id)} other {HOSTILE}"
        day = keys.usage(str(int(time.time()) // DAY))
        await awaitable(redis.hset(day, field, UsageCounts(requests=1).encode()))
        return key.id, team.id

    key_id, team_id = asyncio.run(fill())
    monkeypatch.setattr("cli.base.instances.running", list)
    monkeypatch.setattr("cli.base.store_reader.connect", lambda *_, **__: FakeAsyncRedis(server=server))
    given = [{"KEY": key_id, "TEAM": team_id}.get(argument, argument) for argument in arguments]
    outcome = CliRunner(env={"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}).invoke(main, given)
    assert outcome.output
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", outcome.output), outcome.output
    if "--json" in arguments:
        for line in outcome.stdout.splitlines():
            json.loads(line)


def test_the_text_of_a_model_keeps_its_lines_only(capsys: pytest.CaptureFixture[str]) -> None:
    for piece in ("a\n\tb", "\x1b", "]0;c"):
        echo(piece, nl=False)
    assert capsys.readouterr().out == "a\n\tb\\x1b]0;c"


def test_a_batch_without_any_result_is_a_failure_with_its_reasons(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        _end(batch(total=2, completed=0, failed=2))
    _end(batch(total=2, completed=1, failed=1))
    refused = {"response": {"status_code": 404, "body": {"error": {"message": f"no {NAME}"}}}, "error": None}
    expired = {"response": None, "error": {"code": "batch_expired", "message": "too late"}}
    (tmp_path / "errors").write_text("\n".join(map(json.dumps, (refused, expired, refused))))
    assert _reasons(tmp_path / "errors") == [r"2 failed: no tiny\x1b[2J", "1 failed: too late"]
