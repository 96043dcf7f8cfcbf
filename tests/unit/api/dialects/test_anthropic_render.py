"""Messages and streams of Anthropic's dialect."""

import json
from typing import Any

from api.dialects.base.interface import Choice, Usage
from shared.protocol.errors import Problem, ProblemKind
from shared.protocol.request import ChatRequest
from tests.support.dialects import DIALECTS
from tests.support.sdk_types import anthropic_types, checked

USER = {"role": "user", "content": "Hello"}
USAGE = Usage(prompt_tokens=9, completion_tokens=5, cached_tokens=3, reasoning_tokens=2)
DIALECT = DIALECTS["anthropic"].make()


def parse(**fields: Any) -> ChatRequest:
    return DIALECT.parse(json.dumps({"model": "m", "max_tokens": 5, "messages": [USER]} | fields).encode())


def test_a_wrong_key_is_not_to_be_sent_again() -> None:
    reply = DIALECT.error(Problem(kind=ProblemKind.UNAUTHORIZED, message="Incorrect API key."))
    assert (reply.status, reply.headers["x-should-retry"]) == (401, "false")


def test_reasoning_that_is_omitted_is_in_its_signature() -> None:
    request = parse(thinking={"type": "adaptive", "display": "omitted"}, stream=True)
    by = DIALECT.render(request, response_id="a", created=1, fingerprint="")
    stream = by.opening(0) + by.reasoning(0, "Hm") + by.reasoning(0, ".") + by.content(0, "Hey")
    stream += by.closing(0, "stop") + by.usage(USAGE) + by.done
    found = [json.loads(event.partition(b"data: ")[2]) for event in stream.split(b"\n\n")[:-1]]
    assert found[2]["content_block"] == {"type": "thinking", "thinking": "", "signature": ""}
    assert [event["delta"]["type"] for event in found if event["type"] == "content_block_delta"] == [
        "signature_delta",
        "text_delta",
    ]
    whole = checked(
        anthropic_types().Message, by.completion([Choice(index=0, text="Hey", reason="stop", reasoning="Hm.")], USAGE)
    )
    block = whole.content[0].model_dump(exclude_unset=True)
    assert block == {"type": "thinking", "thinking": "", "signature": found[3]["delta"]["signature"]}
    foreign = {"type": "thinking", "thinking": "", "signature": "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pkiMOYds"}
    assert parse(messages=[{"role": "assistant", "content": [block, foreign]}, USER]).messages[0].reasoning == "Hm."
