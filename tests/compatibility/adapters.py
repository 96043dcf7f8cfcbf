"""Shows what is not a dialect, but an interface all the same, as a dialect."""

import json
from abc import abstractmethod
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import msgspec

from api.batches.forms import BatchesQuery, parse_batch, render_batch
from api.batches.input import validate_file
from api.batches.record import Batch, BatchCounts, LineError
from api.batches.results import failure_of, response_of
from api.dialects.base.interface import Asked, Dialect, ResponseEncoder
from api.dialects.base.query import validate_query
from api.dialects.responses import Responses
from api.dialects.responses.parse import StoredConversation
from api.files.forms import parse_query, parse_upload, render_file
from api.files.record import FileRecord
from api.files.upload import Upload
from shared.protocol.errors import ProblemKind, refuse
from shared.protocol.events import Tokenized
from shared.protocol.request import ChatRequest
from tests.support.dialects import Serving

_CHAT = "/v1/chat/completions"
_USER: dict[str, Any] = {"role": "user", "content": "Hello"}


class Document:
    """Stands for the encoder of an interface whose responses are not streams."""

    done = b""

    def __init__(self, document: bytes) -> None:
        self._document = document

    def completion(self, choices: object, usage: object) -> bytes:
        return self._document

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: b""


class Adapter(Dialect):
    """Shows the parsers of an interface as those of a dialect."""

    def __init__(self, query: Mapping[str, str]) -> None:
        super().__init__()
        self._query = query

    def parse(self, body: bytes) -> ChatRequest:
        self.read(json.loads(body), self._query)
        return ChatRequest(model="m")

    def render(self, request: ChatRequest, *, response_id: str, created: int, fingerprint: str) -> ResponseEncoder:
        return Document(self.document())

    @abstractmethod
    def read(self, body: dict[str, Any], query: Mapping[str, str]) -> None:
        """Parse a request. Raises :class:`RequestRefused`."""

    @abstractmethod
    def document(self) -> bytes:
        """Return a response with all fields."""


class WithHistory(Responses):
    """The dialect with a stored item and a stored response."""

    def parse(self, body: bytes) -> ChatRequest:
        valid = self.validate(body)
        history = StoredConversation(earlier=(_USER,), referenced={"m": _USER})
        return valid.request(history, store=valid.store is not False)


class Tokens(Dialect):
    """A dialect whose requests a tokenizer answers."""

    def __init__(self, dialect: type[Dialect]) -> None:
        super().__init__()
        self._dialect = dialect(Asked(fleet=Serving("m")))

    def parse(self, body: bytes) -> ChatRequest:
        return self._dialect.parse(body)

    def render(self, request: ChatRequest, *, response_id: str, created: int, fingerprint: str) -> ResponseEncoder:
        return Document(self._dialect.answer(request, [Tokenized((1, 2), ("H", "i"), "Hi", 2048)]))


class Files(Adapter):
    def read(self, body: dict[str, Any], query: Mapping[str, str]) -> None:
        filename = body.pop("file")
        expiry = body.pop("expires_after", {})
        body |= {f"expires_after[{name}]": str(value) for name, value in expiry.items()}
        parse_upload(Upload(filename=filename, fields=body))
        parse_query(query)

    def document(self) -> bytes:
        return render_file(
            FileRecord(id="file-1", owner="", filename="f", size=1, purpose="batch", created=1, expires=2)
        )


class Batches(Adapter):
    def read(self, body: dict[str, Any], query: Mapping[str, str]) -> None:
        parse_batch(json.dumps(body).encode(), owner="", now=1.0)
        validate_query(BatchesQuery, query)

    def document(self) -> bytes:
        batch = Batch(
            id="batch_1",
            owner="",
            endpoint=_CHAT,
            input_file="file-1",
            created=1,
            expires=2,
            metadata={"k": "v"},
            retention=3600,
            errors=(LineError(code="c", message="m", line=1, param="p"),),
            model="m",
            counts=BatchCounts(
                total=3,
                completed=2,
                failed=1,
                prompt_tokens=1,
                cached_tokens=1,
                completion_tokens=1,
                reasoning_tokens=1,
            ),
            output_file="file-2",
            error_file="file-3",
        )
        for status in ("in_progress", "finalizing", "failed", "expired", "cancelling", "cancelled", "completed"):
            batch = batch.at(status, 1)
        return render_batch(batch)


class BatchRequests(Adapter):
    def read(self, body: dict[str, Any], query: Mapping[str, str]) -> None:
        for error in validate_file(BytesIO(json.dumps(body).encode()), _CHAT, 1000).errors:
            raise refuse(ProblemKind.INVALID, error.message, param=error.param)

    def document(self) -> bytes:
        good = msgspec.json.decode(response_of(0, "c", 200, b'{"id":"c"}', request_id="r").json)
        bad = msgspec.json.decode(failure_of(0, "c", "batch_expired", "m").json)
        return msgspec.json.encode(good | {"error": bad["error"]})
