"""Token requests (``/tokenize`` and its like), which run as jobs: a worker's prompt process has the tokenizer."""

from quart import request

from api.chat.exchange import ChatExchange
from api.http.exchange import current_exchange
from api.replica import current_replica
from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from shared.protocol.events import Failed, Rejected, Tokenized
from shared.protocol.request import ChatRequest


async def tokenized(asked: ChatRequest) -> Tokenized:
    """Have a worker tokenize a prompt, within the limits of the client's key."""
    exchange = current_exchange()
    exchange.chat = chat = ChatExchange(
        current_replica(),
        asked,
        key=exchange.key,
        headers=request.headers,
        messages=b"",
        started_at=exchange.started_at,
        span=exchange.span,
    )
    await exchange.enter(chat)
    found: Tokenized | None = None
    async for batch in chat.stream.batches():
        for _, event in batch:
            match event:
                case Tokenized():
                    found = event
                    chat.recorder.outcome = "stop"
                case Failed() | Rejected():
                    chat.recorder.outcome = event.problem.kind
                    raise RequestRefused(event.problem)
    if found is None:
        raise refuse(ProblemKind.LOST, "The worker sent no tokens. Please send the request again.")
    return found
