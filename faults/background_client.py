"""A client of background responses: it asks once, then polls any replica until the response has ended."""

import asyncio
import time
from collections.abc import Callable, Sequence

import httpx

from faults.history import Exchange
from faults.prompts import Model

_POLL = 0.1
_TIMEOUT = 30.0


async def respond(ports: Callable[[], Sequence[int]], port: int, model: Model, exchange: Exchange) -> None:
    """Send the request of ``exchange`` to a replica, and read its response from those that are there.

    ``ports`` returns the ports of the replicas of the moment.
    """
    body = {
        "model": model,
        "temperature": 0,
        "input": exchange.prompt,
        "max_output_tokens": exchange.tokens,
        "background": True,
    }
    async with httpx.AsyncClient(timeout=_TIMEOUT) as client:
        try:
            accepted = await client.post(f"http://127.0.0.1:{port}/v1/responses", json=body)
            exchange.status, exchange.headers_at = accepted.status_code, time.monotonic()
            if exchange.status == 200:
                await _poll(client, ports, accepted.json()["id"], exchange)
            else:
                exchange.outcome, exchange.error = "refused", accepted.text
                exchange.retry_after = float(accepted.headers.get("retry-after", "0"))
        except httpx.TransportError as error:
            exchange.outcome, exchange.error = "cut", repr(error)
        finally:
            exchange.ended = time.monotonic()


async def _poll(
    client: httpx.AsyncClient, ports: Callable[[], Sequence[int]], response_id: str, exchange: Exchange
) -> None:
    turn = 0
    while True:
        turn += 1
        await asyncio.sleep(_POLL)
        there = ports()
        try:
            found = await client.get(f"http://127.0.0.1:{there[turn % len(there)]}/v1/responses/{response_id}")
        except httpx.TransportError:
            continue  # The replica has died. The response has not.
        if found.status_code == 503:
            continue
        response = found.json()
        if found.status_code != 200 or response["status"] == "failed":
            exchange.outcome, exchange.error = "failed", found.text
            exchange.endings += 1
            return
        if response["status"] in ("completed", "incomplete"):
            exchange.pieces.append(response["output"][0]["content"][0]["text"])
            exchange.arrivals.append(time.monotonic())
            usage = response["usage"]
            exchange.prompt_tokens, exchange.completion_tokens = usage["input_tokens"], usage["output_tokens"]
            exchange.outcome = "completed"
            exchange.endings += 1
            return
