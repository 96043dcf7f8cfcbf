"""A client of one OpenAI-compatible endpoint that times the chunks of streamed responses.

It relies only on what such servers have in common: ``data:`` lines with ``choices``. Usage, ``[DONE]`` and everything
else is optional.
"""

import asyncio
import math
import ssl
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

import httpcore2
import msgspec

Api = Literal["chat", "completions"]

_PATHS: dict[Api, str] = {"chat": "/chat/completions", "completions": "/completions"}
_MAX_ERROR_BODY = 64 * 1024
"""Bytes of an error body that are read."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """One request and its response. Times are of :func:`time.perf_counter`, in seconds."""

    started: float
    arrivals: list[float] = field(default_factory=list)
    """When the chunks with text arrived."""
    ended: float = 0.0
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    """From the usage that the server reports; ``None`` if it reports none."""
    error: str = ""
    """The kind of error; empty for a complete response."""
    message: str = ""
    """What the server or the network said about the error."""

    @property
    def tokens(self) -> int:
        """Output tokens, or the number of chunks with text if the server reports no usage."""
        return len(self.arrivals) if self.output_tokens is None else self.output_tokens


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[Any] | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None

    def has_text(self) -> bool:
        delta = self.delta
        return bool(
            self.text or (delta and (delta.content or delta.reasoning_content or delta.reasoning or delta.tool_calls))
        )


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_chunk = msgspec.json.Decoder(_Chunk)


class _Failure(Exception):
    """A response that is not complete: the kind of error, and what the server said."""


class Endpoint:
    """Sends requests to one API of a server. An async context manager that owns its connections."""

    def __init__(self, url: str, key: str, api: Api, fields: dict[str, Any], *, timeout: float) -> None:
        """``url`` is the base URL; without a path, ``/v1`` is added. ``timeout`` is the time for one request in
        seconds.

        Raises :class:`ValueError` for a URL that is not one of HTTP.
        """
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"not an HTTP URL: {url}")
        base = parts.path.rstrip("/") or "/v1"
        self.url = f"{parts.scheme}://{parts.netloc}{base}"
        self.with_usage = True
        """Whether to ask for usage with ``stream_options``."""
        self._api: Api = api
        self.fields = dict(fields)
        """The fields of every request's body, besides the prompt. ``None`` removes one."""
        self._timeout = timeout
        self._headers = [(b"host", parts.netloc.rpartition("@")[2].encode()), (b"accept-encoding", b"identity")]
        if key:
            self._headers.append((b"authorization", f"Bearer {key}".encode()))
        secure = ssl.create_default_context() if parts.scheme == "https" else None
        self._pool = httpcore2.AsyncConnectionPool(ssl_context=secure, max_connections=None, keepalive_expiry=5.0)

    async def __aenter__(self) -> "Endpoint":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pool.aclose()

    async def first_model(self) -> str:
        """Return the first model that the server lists. Raises :class:`OSError` with a message if there is none."""
        try:
            async with asyncio.timeout(self._timeout):
                response = await self._pool.request("GET", f"{self.url}/models", headers=self._headers)
            if response.status != 200:
                raise OSError(f"{self.url}/models responded with {response.status}: {_error_message(response.content)}")
            return str(msgspec.json.decode(response.content)["data"][0]["id"])
        except (msgspec.DecodeError, KeyError, IndexError, TypeError):
            raise OSError(f"{self.url}/models lists no model") from None
        except (TimeoutError, httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError) as error:
            raise OSError(f"{self.url} can't be reached: {_reason(error)}") from None

    async def ask(self, prompt: str) -> Outcome:
        """Send one request and read its response to the end. Errors are in the result."""
        outcome = Outcome(started=time.perf_counter())
        try:
            async with asyncio.timeout(self._timeout):
                await self._exchange(prompt, outcome)
        except _Failure as failure:
            outcome.error, outcome.message = failure.args
        except (TimeoutError, httpcore2.TimeoutException):
            outcome.error, outcome.message = "timeout", f"no complete response within {self._timeout:g} s"
        except httpcore2.ConnectError as error:
            outcome.error, outcome.message = "connection failed", _reason(error)
        except (httpcore2.NetworkError, httpcore2.ProtocolError) as error:
            outcome.error, outcome.message = "connection lost", _reason(error)
        outcome.ended = time.perf_counter()
        return outcome

    async def _exchange(self, prompt: str, outcome: Outcome) -> None:
        body = self._body(prompt)
        headers = [*self._headers, (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        url = self.url + _PATHS[self._api]
        async with self._pool.stream("POST", url, headers=headers, content=body) as response:
            if response.status != 200:
                raise _Failure(f"HTTP {response.status}", _error_message(await _error_body(response)))
            kind = next((value for name, value in response.headers if name.lower() == b"content-type"), b"")
            if not kind.startswith(b"text/event-stream"):
                raise _Failure("no event stream", f"the content type is {kind.decode(errors='replace') or 'missing'}")
            await _read(response, outcome)

    def _body(self, prompt: str) -> bytes:
        body = {"messages": [{"role": "user", "content": prompt}]} if self._api == "chat" else {"prompt": prompt}
        options = {"stream_options": {"include_usage": True}} if self.with_usage else {}
        fields = {**body, "stream": True, **options, **self.fields}
        return msgspec.json.encode({name: value for name, value in fields.items() if value is not None})


async def _read(response: httpcore2.Response, outcome: Outcome) -> None:
    """Read the chunks of a stream into ``outcome``."""
    finished = False
    async for data in _events(response):
        if data == b"[DONE]":
            finished = True
            continue
        try:
            chunk = _chunk.decode(data)
        except msgspec.DecodeError as error:
            raise _Failure("malformed chunk", f"{error}: {data[:200].decode(errors='replace')}") from None
        if chunk.error is not None:
            raise _Failure("error in the stream", _error_message(data))
        for choice in chunk.choices or ():
            finished = finished or choice.finish_reason is not None
        if any(choice.has_text() for choice in chunk.choices or ()):
            outcome.arrivals.append(time.perf_counter())
        if chunk.usage is not None and chunk.usage.completion_tokens is not None:
            outcome.prompt_tokens = chunk.usage.prompt_tokens
            outcome.output_tokens = chunk.usage.completion_tokens
    if not finished:
        raise _Failure("incomplete stream", "the stream ended without a finish reason and without [DONE]")
    if not outcome.arrivals:
        raise _Failure("no text", "the stream has no chunk with text")


async def _events(response: httpcore2.Response) -> AsyncIterator[bytes]:
    """Yield the contents of ``data:`` lines as they arrive."""
    rest = b""
    async for part in response.aiter_stream():
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip()
    if rest.startswith(b"data:"):
        yield rest[5:].strip()


async def _error_body(response: httpcore2.Response) -> bytes:
    body = b""
    async for part in response.aiter_stream():
        body += part
        if len(body) > _MAX_ERROR_BODY:
            break
    return body


def _error_message(body: bytes) -> str:
    """Return the message of an error body, whatever its form."""
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return body[:200].decode(errors="replace").strip()
    for name in ("error", "message", "detail"):
        if isinstance(found, dict) and name in found:
            found = found[name]
    return found if isinstance(found, str) else msgspec.json.encode(found)[:200].decode(errors="replace")


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def gaps(outcome: Outcome) -> list[float]:
    """Return the seconds between chunks with text."""
    return [later - earlier for earlier, later in zip(outcome.arrivals, outcome.arrivals[1:], strict=False)]


def time_per_token(outcome: Outcome) -> float:
    """Return the seconds per output token after the first one; NaN for a response of one token."""
    if outcome.tokens < 2:
        return math.nan
    return (outcome.ended - outcome.arrivals[0]) / (outcome.tokens - 1)
