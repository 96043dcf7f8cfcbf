"""The model server's Responses API: its own fields, and its forms of tools and formats."""

import json

from api.dialects.base.interface import Choice, Usage
from api.dialects.ovms.responses import ModelServerResponses


def test_streams_end_with_done() -> None:
    dialect = ModelServerResponses()
    request = dialect.parse(b'{"model": "m", "input": "Hello", "tools": [{"type": "web_search"}]}')
    encoder = dialect.render(request, response_id="a", created=1, fingerprint="")
    assert encoder.done == b"data: [DONE]\n\n"
    usage = Usage(prompt_tokens=1, completion_tokens=1)
    document = json.loads(encoder.completion([Choice(index=0, text="Hi", reason="stop")], usage))
    assert (document["store"], dialect.skipped_tools) == (False, ("web_search",))
