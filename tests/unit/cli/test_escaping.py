"""Names and messages from the service cannot control the terminal, and results of a batch say why requests failed."""

import io
import json
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import click
import pytest

from cli.base.api_client import ApiClient
from cli.batch.commands import _described, _end, _reasons
from cli.up.progress import Progress
from shared.protocol.registry import WorkerInfo

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
    with Progress() as progress:
        progress.loading(worker)
        progress.serving(worker.pid, [worker.model], "http://127.0.0.1:1", "", web=False)
    written = capsys.readouterr().out
    assert "\x1b" not in written
    assert r"serves tiny\x1b[2J at" in written


def test_a_batch_without_any_result_is_a_failure_with_its_reasons(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        _end(batch(total=2, completed=0, failed=2))
    _end(batch(total=2, completed=1, failed=1))
    refused = {"response": {"status_code": 404, "body": {"error": {"message": f"no {NAME}"}}}, "error": None}
    expired = {"response": None, "error": {"code": "batch_expired", "message": "too late"}}
    (tmp_path / "errors").write_text("\n".join(map(json.dumps, (refused, expired, refused))))
    assert _reasons(tmp_path / "errors") == [r"2 failed: no tiny\x1b[2J", "1 failed: too late"]
