"""Random requests of one greedy client: each within all limits, each as expensive as a field allows.

``python -m faults.greedy URL KEY MODEL SEED SECONDS LOG`` sends them, in a process of its own, so that making
them delays nobody. The log has a line for each request with its times, which shows what ran beside a slow neighbour.
"""

import asyncio
import base64
import io
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
from PIL import Image

from api.build import openapi_document
from tests.support.dialects import DIALECTS

CONNECTIONS = 8
BYTES = 400_000
"""Usual size of a body; one in eight has up to ten times as much."""

Value = Any
_SCHEMAS = json.loads(openapi_document())


def _minimal(model: str) -> dict[str, dict[str, Value]]:
    """Return a small valid body for each route that generates or counts."""
    messages = [{"role": "user", "content": "How many shapes are there?"}]
    return {
        **{
            tried.route.path: tried.body("How many shapes are there?", model, **{tried.known.limit: 16})
            for tried in DIALECTS.values()
        },
        "/v1/responses/input_tokens": {"model": model, "input": "How many"},
        "/v1/messages/count_tokens": {"model": model, "messages": messages},
        "/tokenize": {"model": model, "prompt": "How many"},
        "/detokenize": {"model": model, "tokens": [1, 2, 3]},
    }


class Greed:
    """Makes requests from a seed."""

    def __init__(self, model: str, seed: int) -> None:
        self._dice = random.Random(f"greedy {seed}")
        self._bodies = _minimal(model)

    def request(self) -> tuple[str, dict[str, Value], str]:
        """Return a path, a JSON body, and in one word or two what is large in it."""
        dice = self._dice
        path = dice.choice([*self._bodies])
        body = json.loads(json.dumps(self._bodies[path]))
        room = BYTES * 10 if dice.random() < 0.12 else BYTES
        special = dice.random()
        if special < 0.2 and "messages" in body and path != "/v1/messages/count_tokens":
            return path, self._with_schema(path, body), "schema"
        if special < 0.35 and path.endswith("chat/completions"):
            return path, self._with_images(body), "images"
        schema = _resolve(
            _SCHEMAS["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"],
        )
        names = dice.sample([*schema["properties"]], k=dice.choice((1, 1, 2)))
        for name in names:
            if name != "model":
                body[name] = self.value(schema["properties"][name], room // len(names))
        return path, body, ", ".join(names)

    def stored_input(self) -> dict[str, Value]:
        """Return a large body for a background response."""
        return {**self._bodies["/v1/responses"], "input": self._text(BYTES * 10), "background": True, "store": True}

    def batch_file(self) -> bytes:
        """Return the file of a batch, whose requests are like those of :meth:`request`."""
        lines = []
        for number in range(self._dice.choice((1, 50, 500))):
            _, body, _ = self.request()
            lines.append({"custom_id": f"{number}", "method": "POST", "url": "/v1/chat/completions", "body": body})
        return b"\n".join(json.dumps(line).encode() for line in lines)[: BYTES * 10]

    def action(self) -> str:
        """Return what to do next: ``request``, ``background``, ``batch`` or the path of a GET."""
        dice = self._dice
        lists = [path for path, operations in _SCHEMAS["paths"].items() if "get" in operations and "{" not in path]
        return dice.choices(("request", "background", "batch", dice.choice(lists)), weights=(20, 1, 1, 2))[0]

    def value(self, schema: dict[str, Value], room: int) -> Value:
        """Return a value of an OpenAPI ``schema`` with about ``room`` bytes."""
        dice = self._dice
        schema = _resolve(schema)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return dice.choice(schema["enum"])
        if options := [one for one in schema.get("anyOf") or schema.get("oneOf") or [] if one.get("type") != "null"]:
            return self.value(dice.choice(options), room)
        match schema.get("type"):
            case "string":
                return self._text(min(room, schema.get("maxLength", room)))
            case "integer" | "number":
                return dice.choice((schema.get("maximum", 64), schema.get("minimum", 0), 1, 32))
            case "boolean":
                return dice.random() < 0.8
            case "array":
                count = min(dice.choice((1, 4, 64, 1000, 20_000)), schema.get("maxItems", 20_000))
                size = max(1, room // count)
                items = [self.value(schema.get("items", {}), size) for _ in range(min(count, 8))]
                count = min(count, room * len(items) // len(json.dumps(items)) + 1)
                return [items[number % len(items)] for number in range(count)]
            case "object" if "properties" in schema:
                wanted = {*schema.get("required", ()), *dice.sample([*schema["properties"]], k=1)}
                return {name: self.value(schema["properties"][name], room // len(wanted)) for name in wanted}
            case _:
                return self.json_schema(room)

    def json_schema(self, room: int) -> dict[str, Value]:
        """Return a JSON schema that is expensive for its size, and new."""
        dice = self._dice
        salt = f"{dice.getrandbits(48):x}"
        count = dice.choice((10, 100, min(25_000, max(1, room // 30))))
        names = [f"{salt}{number}" for number in range(count)]
        word = {"type": "string", "maxLength": dice.choice((4, 200, 10_000))}

        def properties() -> dict[str, Value]:
            return {"properties": dict.fromkeys(names, word), "required": [f"x{name}" for name in names]}

        def deep() -> dict[str, Value]:
            inner: dict[str, Value] = word
            for name in names[:30]:
                inner = {"type": "object", "properties": {name: inner}, "required": [name], **_CLOSED}
            return {"properties": {"a": inner}, "required": ["a"]}

        def pattern(text: str) -> dict[str, Value]:
            return {"properties": {salt: {"type": "string", "pattern": text}}, "required": [salt]}

        kinds: list[Callable[[], dict[str, Value]]] = [
            properties,
            deep,
            lambda: {"properties": {salt: {"enum": names}}, "required": [salt]},
            lambda: {"properties": {salt: {"anyOf": [{"const": name} for name in names]}}},
            lambda: {"properties": {salt: {"type": "array", "items": word, "minItems": 50, "maxItems": count}}},
            lambda: {"properties": {salt: {"allOf": [{"$ref": "#/$defs/a"}] * min(count, 300)}}, "$defs": {"a": word}},
            lambda: pattern(f"^{salt}({'|'.join(names[:400])}){{1,60}}$"),
            lambda: pattern(f"^({salt}|[a-z]{{1,{dice.choice((9, 60, 250))}}}[0-9]{{2,90}}){{1,40}}$"),
            lambda: pattern("(" * 40 + salt + "*)*" * 40),
        ]
        return {"type": "object", **_CLOSED, **dice.choice(kinds)()}

    def images(self) -> list[str]:
        """Return data URLs of images that are expensive to decode."""
        dice = self._dice
        kinds: list[Callable[[], bytes]] = [
            lambda: _encode(Image.new("RGB", (4000, 4000), _colour(dice)), "PNG"),
            lambda: _encode(Image.effect_noise((900, 900), 90), "PNG"),
            lambda: _many_scans(dice.choice((50, 1500)), _colour(dice)),
            lambda: _encode(Image.new("P", (3000, 3000), dice.randrange(256)), "GIF"),
            lambda: _encode(Image.new("RGB", (5000, 4000), _colour(dice)), "WEBP"),
            lambda: _encode(Image.new("RGB", (5600, 4200), _colour(dice)), "JPEG"),
            lambda: dice.randbytes(200_000),
        ]
        file = dice.choice(kinds)()
        return [f"data:image/png;base64,{base64.b64encode(file).decode()}"] * dice.choice((1, 1, 4, 16))

    def _with_schema(self, path: str, body: dict[str, Value]) -> dict[str, Value]:
        schema = self.json_schema(self._dice.choice((2000, BYTES)))
        if path == "/v1/messages":
            return {**body, "tools": [{"name": "f", "input_schema": schema}]}
        if self._dice.random() < 0.5:
            strict = self._dice.random() < 0.7
            form = {"name": "f", "schema": schema, "strict": strict}
            return {**body, "response_format": {"type": "json_schema", "json_schema": form}}
        function = {"name": "f", "parameters": schema, "strict": self._dice.random() < 0.5}
        return {**body, "tools": [{"type": "function", "function": function}], "tool_choice": "required"}

    def _with_images(self, body: dict[str, Value]) -> dict[str, Value]:
        parts = [{"type": "image_url", "image_url": {"url": url}} for url in self.images()]
        return {**body, "messages": [{"role": "user", "content": [*parts, {"type": "text", "text": "What is this?"}]}]}

    def _text(self, room: int) -> str:
        dice = self._dice
        unit = dice.choice(("a", "a ", "\x00", "é", "🎨", '"', "\\", "<|im_end|>", "{", "\n", "0"))
        return unit * (dice.choice((1, 100, room)) // len(unit.encode()) or 1)


_CLOSED = {"additionalProperties": False}


def _resolve(schema: dict[str, Value]) -> dict[str, Value]:
    while "$ref" in schema:
        schema = _SCHEMAS["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def _colour(dice: random.Random) -> tuple[int, int, int]:
    return (dice.randrange(256), dice.randrange(256), dice.randrange(256))


def _encode(image: Image.Image, form: str) -> bytes:
    file = io.BytesIO()
    image.save(file, form)
    return file.getvalue()


def _many_scans(count: int, colour: tuple[int, int, int]) -> bytes:
    """Return a progressive JPEG whose last scan is repeated."""
    buffer = io.BytesIO()
    Image.new("RGB", (1500, 1500), colour).save(buffer, "JPEG", progressive=True)
    file = buffer.getvalue()
    last = file.rindex(b"\xff\xda")
    return file[:last] + file[last:-2] * count + file[-2:]


async def _send(session: aiohttp.ClientSession, greed: Greed, until: float, log: Callable[[str], object]) -> None:
    dice = random.Random(time.monotonic_ns())
    while time.monotonic() < until:
        action = greed.action()
        path, body, what = greed.request() if action == "request" else (action, {}, "")
        began, status = time.monotonic(), 0
        try:
            async with asyncio.timeout(dice.choice((0.5, 5, 60))):
                match action:
                    case "request":
                        status = await _exchange(session, "POST", path, json=body)
                    case "background":
                        status = await _exchange(session, "POST", "/v1/responses", json=greed.stored_input())
                    case "batch":
                        status = await _batch(session, greed.batch_file())
                    case _:
                        status = await _exchange(session, "GET", path)
        except (TimeoutError, aiohttp.ClientError):
            pass  # the client leaves, or is disconnected for its size
        log(f"{began:.3f} {time.monotonic():.3f} {status} {path} {what}\n")


async def _exchange(session: aiohttp.ClientSession, method: str, path: str, **body: Value) -> int:
    parameters = {"api-version": "2024-05-01-preview"} if path == "/chat/completions" else {}
    async with session.request(method, path, params=parameters, **body) as response:
        while await response.content.read(65536):
            pass
        return response.status


async def _batch(session: aiohttp.ClientSession, file: bytes) -> int:
    form = aiohttp.FormData({"purpose": "batch"})
    form.add_field("file", file, filename="batch.jsonl")
    async with session.post("/v1/files", data=form) as response:
        uploaded = await response.json()
    if response.status != 200:
        return response.status
    batch = {"input_file_id": uploaded["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    return await _exchange(session, "POST", "/v1/batches", json=batch)


async def main(url: str, key: str, model: str, seed: int, seconds: float, log: Path) -> None:
    """Send requests over :data:`CONNECTIONS` connections for a number of seconds."""
    greed = Greed(model, seed)
    headers = {"authorization": f"Bearer {key}", "anthropic-version": "2023-06-01"}
    until = time.monotonic() + seconds
    with log.open("w", buffering=1) as lines:
        async with aiohttp.ClientSession(url, headers=headers) as session:
            await asyncio.gather(*(_send(session, greed, until, lines.write) for _ in range(CONNECTIONS)))


if __name__ == "__main__":
    _, _url, _key, _model, _seed, _seconds, _log = sys.argv
    asyncio.run(main(_url, _key, _model, int(_seed), float(_seconds), Path(_log)))
