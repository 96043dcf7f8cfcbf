"""``vinoqueue key`` on a simulated store."""

import json

import pytest
from click.testing import CliRunner, Result
from fakeredis import FakeAsyncRedis, FakeServer

from cli.main import main


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch) -> None:
    server = FakeServer()
    monkeypatch.setattr("cli.base.instances.running", list)
    monkeypatch.setattr("cli.base.store_reader.connect", lambda *_, **__: FakeAsyncRedis(server=server))


def key(*arguments: str) -> Result:
    outcome = CliRunner().invoke(main, ["key", *arguments])
    assert outcome.exit_code == 0, outcome.output
    return outcome


def listed() -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(key("list", "--json").stdout)
    return found


def test_the_first_key_says_that_all_requests_need_one() -> None:
    first = key("create")
    secret = first.stdout.strip()
    assert f"every request needs a key: export OPENAI_API_KEY={secret}" in first.stderr
    assert "every request" not in key("create").stderr


def test_revoking_the_last_valid_key_says_that_the_api_stays_closed() -> None:
    for _ in range(2):
        key("create")
    first, second = (str(one["id"]) for one in listed())
    assert "stays closed" not in key("revoke", first).stderr
    assert "stays closed" in key("revoke", second).stderr


def test_limits_can_be_changed_and_removed() -> None:
    key("create", "--name", "team", "--requests-per-minute", "60", "--concurrency", "8")
    (before,) = listed()
    key_id = str(before["id"])
    shown = key("update", key_id, "--requests-per-minute", "120", "--queue-timeout", "30s", "--remove", "concurrency")
    assert shown.stdout.split() == [key_id, "team", "120", "rpm", "waits", "30", "s"]
    (after,) = listed()
    assert after == before | {"requests_per_minute": 120, "concurrency": None, "queue_timeout": 30.0}
    outcome = CliRunner().invoke(main, ["key", "update", key_id])
    assert (outcome.exit_code, "Nothing to change" in outcome.output) == (2, True)


def test_the_audit_log_has_each_change_without_secrets() -> None:
    secrets = [key("create", "--name", "team", "--tokens-per-day", "9").stdout.strip()]
    (made,) = listed()
    key_id = str(made["id"])
    key("update", key_id, "--concurrency", "8", "--remove", "tokens-per-day")
    secrets.append(key("rotate", key_id, "--grace", "1h").stdout.strip())
    key("revoke", key_id)
    shown = CliRunner().invoke(main, ["audit"]).stdout
    lines = [line.split("  ") for line in shown.splitlines()]
    assert [line[2:] for line in lines] == [
        ["api_key.created", key_id, '{"name":"team","tokens_per_day":9}'],
        ["api_key.updated", key_id, '{"concurrency":8,"tokens_per_day":null}'],
        ["api_key.rotated", key_id, '{"grace":3600.0}'],
        ["api_key.deleted", key_id],
    ]
    assert all(line[1].startswith("cli ") for line in lines)
    assert not any(secret in shown for secret in secrets)
    last = CliRunner().invoke(main, ["audit", "--last", "1", "--json"]).stdout
    assert json.loads(last)["action"] == "api_key.deleted"
