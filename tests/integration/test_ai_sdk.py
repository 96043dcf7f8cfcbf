"""The SDKs for JavaScript, at pinned versions: the AI SDK parses every answer, and the types of the official ones are
those of every answer and event.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from api.dialects.base.interface import Dialect
from api.keys import ApiKey, Team
from api.organization.key_forms import render
from shared.protocol.errors import Problem, ProblemKind
from tests.support.batches import chat_line, ended, submit
from tests.support.eventually import PATIENCE
from tests.support.fleet import Fleet
from tests.unit.api.dialects.recorded import cases, made
from tests.unit.api.dialects.test_encoders import FOLDER

pytestmark = pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm (apt-get install npm)")

PACKAGE = Path(__file__).parents[1] / "javascript"
CALL = '[[say <tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>]]'
HELLO = [{"role": "user", "content": "Hello"}]
ANTHROPIC = {"anthropic-version": "2023-06-01", "content-type": "application/json"}
ENCODED = {
    "chat": "Chat",
    "completions": "Completion",
    "responses": "Response",
    "anthropic": "Message",
    "ovms_chat": "Chat",
    "ovms_completions": "Completion",
    "ovms_responses": "Response",
    "azure": "Chat",
}
"""The dialects whose encoders are tested, with the types of their answers; those of their events end with ``Event``."""

Sent = Iterator[tuple[str, Any]]
"""Types in ``sent.ts``, each with what must be one."""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the package, with its dependencies."""
    folder = shutil.copytree(PACKAGE, tmp_path_factory.mktemp("npm") / "javascript")
    subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=folder, check=True)
    return folder


def test_every_provider_parses_every_answer(session_fleet: Fleet, package: Path) -> None:
    command = ["node", "ask.mjs", f"http://127.0.0.1:{session_fleet.port}", "sim", CALL]
    done = subprocess.run(command, cwd=package, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    results: dict[str, dict[str, Any]] = json.loads(done.stdout)
    assert len(results) == 12
    for name, seen in results.items():
        assert "error" not in seen, (name, seen)
        called = name.endswith(" call") and not name.startswith("completion")
        for form in ("whole", "streamed"):
            assert seen[form]["calls"] == ([{"city": "Rome"}] if called else []), (name, seen)
            assert seen[form]["finishReason"] in (("tool-calls",) if called else ("stop", "length")), (name, seen)


def test_ollamas_client(session_fleet: Fleet, package: Path) -> None:
    command = ["node", "ollama.mjs", f"http://127.0.0.1:{session_fleet.port}", "sim", CALL]
    done = subprocess.run(command, cwd=package, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["names"] == ["sim"]
    for name, calls in (("text", []), ("call", [{"city": "Rome"}])):
        assert seen[name] == {"same": True, "whole": calls, "streamed": calls, "reason": "stop"}
    assert "models are added" in seen["refused"]


def encoded() -> Sent:
    """The answers and events of all dialects, as ``test_encoders.py`` has them."""
    for name, kind in ENCODED.items():
        for _, _, case in (param.values for param in cases(FOLDER, name)):
            if "whole" in case:
                yield kind, case["whole"]
            for event in case.get("stream", ()):
                if event == "[DONE]" or event.get("type") == "ping":
                    continue
                failed = event.get("type", "error") == "error" and "error" in event
                yield {"Message": "MessageError"}.get(kind, "Failure") if failed else f"{kind}Event", event


def problems() -> Sent:
    for kind in ProblemKind:
        for name, expected in (("chat", "Failure"), ("responses", "Failure"), ("anthropic", "MessageError")):
            dialect: Dialect = made(name, {})
            yield expected, json.loads(dialect.error(Problem(kind=kind, message="why")).body)


def managed() -> Sent:
    for one in (ApiKey(id="k", digest="d", created=7.5), Team(id="t", created=7.5)):
        yield "Key" if isinstance(one, ApiKey) else "Project", render(one, {}, 8.5)


def answered(fleet: Fleet) -> Sent:
    """The objects of each resource, and lists of them."""

    def asked(method: str, path: str, headers: dict[str, str] | None = None, **fields: Any) -> Any:
        status, _, answer = fleet.request(method, path, json.dumps(fields) if fields else None, headers)
        assert status == 200, answer
        return json.loads(answer)

    client = fleet.client()
    get, post = partial(asked, "GET"), partial(asked, "POST")
    chat = post("/v1/chat/completions", model="sim", messages=HELLO, store=True, metadata={"a": "b"}, max_tokens=3)
    yield "Chat", chat
    yield "Chat", get(stored := f"/v1/chat/completions/{chat['id']}")
    yield "Chat", post(stored, metadata={"a": "c"})
    yield "ChatMessages", get(f"{stored}/messages")
    yield "ChatPage", get("/v1/chat/completions?metadata[a]=c")
    yield "ChatDeleted", asked("DELETE", stored)
    body: dict[str, Any] = {"model": "sim", "input": HELLO, "max_output_tokens": 16}
    tool: dict[str, Any] = {"type": "function", "name": "f"}
    response = post("/v1/responses", tools=[tool], reasoning={"effort": "low"}, **body)
    yield "Response", response
    yield "Response", get(f"/v1/responses/{response['id']}")
    yield "InputItems", get(f"/v1/responses/{response['id']}/input_items")
    yield "Response", (waiting := post("/v1/responses", background=True, **body))
    yield "Response", post(f"/v1/responses/{waiting['id']}/cancel")
    yield "InputTokens", post("/v1/responses/input_tokens", model="sim", input=HELLO)
    yield "MessageTokens", post("/v1/messages/count_tokens", ANTHROPIC, model="sim", messages=HELLO)
    yield "MessageModels", get("/v1/models", ANTHROPIC)
    yield "MessageModel", get("/v1/models/sim", ANTHROPIC)
    yield "Models", get("/v1/models")
    yield "Model", get("/v1/models/sim")
    batch = ended(client, submit(client, [chat_line("a"), chat_line("b", temperature=9)]))
    yield "Batch", get(f"/v1/batches/{batch.id}")
    yield "Batch", get(f"/v1/batches/{ended(client, submit(client, b'?')).id}")
    yield "Batches", get("/v1/batches")
    yield "File", get(f"/v1/files/{batch.input_file_id}")
    yield "Files", get("/v1/files")
    yield "FileDeleted", asked("DELETE", f"/v1/files/{batch.input_file_id}")
    yield "Usage", get("/v1/organization/usage/completions?start_time=1700000000")


def test_every_answer_is_of_the_official_sdks_types(session_fleet: Fleet, package: Path) -> None:
    sent = [*encoded(), *problems(), *managed(), *answered(session_fleet)]
    assert len(sent) > 250
    lines = [
        f"const a{number} = {json.dumps(what)} as const; export const b{number}: sent.{kind} = a{number};"
        for number, (kind, what) in enumerate(sent)
    ]
    (package / "answers.ts").write_text("\n".join(["import type * as sent from './sent.js';", *lines]))
    options = ["--noEmit", "--strict", "--exactOptionalPropertyTypes", "--module", "nodenext", "--target", "es2022"]
    done = subprocess.run(
        [package / "node_modules" / ".bin" / "tsc", *options, "--skipLibCheck", "--noErrorTruncation", "answers.ts"],
        cwd=package,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout
