"""Compaction in the Responses dialect: the request for a summary, and the item that stands for a conversation."""

import base64
import json
from typing import Any

import pytest
from openai.types.responses import CompactedResponse

from api.dialects.interface import Choice, MessagesMissing, Usage
from api.dialects.responses import History, Responses
from api.dialects.responses.compaction import REQUEST, draft_compaction, render_compaction
from api.dialects.responses.summary import encode_summary
from shared.protocol.errors import RequestRefused
from shared.protocol.request import Message
from tests.support.sdk_types import checked

USAGE = Usage(prompt_tokens=9, completion_tokens=5)
ASK = Message(role="user", content=REQUEST)


def messages(**fields: Any) -> tuple[Message, ...]:
    draft = draft_compaction(json.dumps({"model": "m"} | fields).encode())
    earlier = ({"role": "user", "content": "Earlier."},) if draft.previous else ()
    return draft.request(History(earlier=earlier), store=bool(draft.store)).messages


def refused(**fields: Any) -> tuple[str | None, str | None]:
    with pytest.raises(RequestRefused) as refusal:
        messages(**fields)
    return refusal.value.problem.param, refusal.value.problem.code


def compaction(content: str) -> dict[str, str]:
    return {"type": "compaction", "id": "cmp_1", "encrypted_content": content}


def test_the_request_for_a_summary_follows_the_conversation() -> None:
    said = Message(role="user", content="We met.")
    assert messages(input="We met.") == (said, ASK)
    assert messages(input=[{"role": "user", "content": "We met.", "id": None}]) == (said, ASK)
    assert messages(previous_response_id="resp_1") == (Message(role="user", content="Earlier."), ASK)
    assert messages(input=[], previous_response_id="resp_1", instructions="Be brief.")[0].role == "system"
    draft = draft_compaction(b'{"model": "m", "input": "a", "prompt_cache_key": "k"}')
    assert (draft.store, draft.body.max_output_tokens) == (False, 2048)


def test_a_compaction_that_is_refused_names_its_field() -> None:
    with pytest.raises(RequestRefused, match="temperature"):
        messages(input="a", temperature=0.5)
    assert refused(input=[{"role": "critic", "content": "a"}]) == ("input[0].role", "invalid_value")
    assert refused(input=5)[0] == "input"
    assert refused(model=None, input="a")[0] == "model"
    assert refused(input="a", service_tier="scale") == ("service_tier", "unsupported_value")
    with pytest.raises(MessagesMissing) as missing:
        draft_compaction(b'{"model": "m"}')
    assert missing.value.problem.param == "input"


def test_a_compacted_conversation_precedes_the_next_message() -> None:
    choice = Choice(index=0, text=" We met.\n", reason="stop", reasoning="Hm.")
    document = render_compaction(choice, USAGE, answer_id="0a", created=7)
    compacted = checked(CompactedResponse, document)
    (item,) = compacted.output
    assert item.type == "compaction"
    assert "met" not in item.encrypted_content
    assert (compacted.id, item.id, compacted.usage.total_tokens) == ("resp_0a", "cmp_0a", 14)
    body = {"model": "m", "input": [*json.loads(document)["output"], {"role": "user", "content": "And now?"}]}
    (message,) = Responses().parse(json.dumps(body).encode()).messages
    assert message == Message(role="user", content="Summary of the conversation so far:\nWe met.\n\nAnd now?")
    (message,) = Responses().parse(json.dumps(body | {"input": body["input"][:1]}).encode()).messages
    assert message.content.startswith("Summary of the conversation so far:\nWe met.")


@pytest.mark.parametrize("content", ["", "????", "gAAAA", base64.b64encode(b"\xff{").decode(), "e30=", "é"])
def test_content_that_the_service_did_not_make(content: str) -> None:
    with pytest.raises(RequestRefused) as refusal:
        Responses().parse(json.dumps({"model": "m", "input": [compaction(content)]}).encode())
    assert refusal.value.problem.param == "input[0].encrypted_content"


def test_any_text_survives() -> None:
    text = 'Größe "x"\n\t🙂 \x00'
    body = {"model": "m", "input": [compaction(encode_summary(text))]}
    (message,) = Responses().parse(json.dumps(body).encode()).messages
    assert text in message.content


def test_a_conversation_without_a_summary_is_not_compacted() -> None:
    with pytest.raises(RequestRefused, match="no summary"):
        render_compaction(Choice(index=0, text=" ", reason="length"), USAGE, answer_id="0a", created=7)
