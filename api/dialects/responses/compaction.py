"""Compaction, at ``/v1/responses/compact``: a conversation becomes one item, the model's summary of it."""

import msgspec

from api.dialects.interface import Choice, Usage
from api.dialects.openai.body import decode_object
from api.dialects.openai.validation import check_names
from api.dialects.responses.parse import Draft, draft_of, unknown_fields, with_input
from api.dialects.responses.render import usage_object
from api.dialects.responses.schema import ProcessingFields, ResponsesRequest
from api.dialects.responses.summary import encode_summary
from shared.protocol.errors import ProblemKind, refuse

REQUEST = (
    "Summarize this conversation so that it can be continued with the summary alone. Keep what the user wants, what "
    "was decided, facts, names, numbers, code, results of tools and open tasks. Write only the summary."
)
"""The message that follows the conversation."""

MAX_TOKENS = 2048
"""Maximum length of a summary. Small models may not end by themselves."""


class CompactRequest(ProcessingFields):
    """The body of ``POST /v1/responses/compact``."""


def draft_compaction(body: bytes) -> Draft[ResponsesRequest]:
    """Validate a body and return the draft of the request for a summary.

    Raises :class:`RequestRefused` and no other exception.
    """
    body_fields = decode_object(body)
    check_names(CompactRequest, body_fields, unknown=unknown_fields)
    value = {**with_input(body_fields), "store": False, "max_output_tokens": MAX_TOKENS}
    items = value.get("input")
    if isinstance(items, str):
        items = [_user(items)]
    if isinstance(items, list):
        value["input"] = [*items, _user(REQUEST)]
    return draft_of(ResponsesRequest, value)


def render_compaction(choice: Choice, usage: Usage, *, answer_id: str, created: int) -> bytes:
    """Return the compacted conversation as JSON.

    Raises :class:`RequestRefused` if there is no summary, as when the model's reasoning reaches the length limit.
    """
    summary = choice.text.strip()
    if not summary:
        raise refuse(ProblemKind.INTERNAL, "The model wrote no summary. The conversation is not compacted.")
    item = {"id": f"cmp_{answer_id}", "type": "compaction", "encrypted_content": encode_summary(summary)}
    return msgspec.json.encode(
        {
            "id": f"resp_{answer_id}",
            "object": "response.compaction",
            "created_at": created,
            "output": [item],
            "usage": usage_object(usage),
        }
    )


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}
