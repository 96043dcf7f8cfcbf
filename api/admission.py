"""Who may do what, and how much of it: from the headers of a request to a ticket for the service."""

import asyncio
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
from redis.exceptions import RedisError

from api.answers.charging import tokens_to_charge
from api.answers.selection import jobs_per_prompt
from api.answers.usage_recorder import UsageRecorder
from api.dialects.interface import Lookup
from api.keys import ApiKey, Keyring
from api.keys.secret import masked
from api.limits import Limiter, LimitName, Refusal, Reservation
from api.limits.headers import rate_headers
from shared.protocol.cost import answer_cost, prompt_cost
from shared.protocol.errors import ProblemKind, RequestRefused, refuse, store_unavailable
from shared.protocol.request import ChatRequest, Tier
from shared.redis import outage
from shared.runtime.settings import ApiSettings
from shared.runtime.tasks import BackgroundTasks

logger = logging.getLogger(__name__)

QUEUE_TIMEOUT_HEADER = "x-queue-timeout"

_RETRY_SOON = 1.0
_CLOSE_TIMEOUT = 2.0
"""Seconds for the last settlements."""
_RANKS: dict[Tier | None, int] = {"flex": 0, "default": 1, "auto": 1, None: 1, "priority": 2}
_KINDS = {
    "requests": ProblemKind.RATE_LIMITED,
    "tokens": ProblemKind.TOKENS_LIMITED,
    "concurrency": ProblemKind.RATE_LIMITED,
}
_LIMIT_WORDS = {"requests": "requests per minute", "tokens": "tokens per minute", "concurrency": "requests at a time"}


@dataclass(frozen=True, slots=True)
class Ticket:
    """A request that was admitted, and what the service has to know of its sender.

    ``tenant`` is the id of the key, empty where none was needed; ``headers`` tell the client what it has left.
    """

    request: ChatRequest
    tenant: str = ""
    queue_timeout: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    reservation: Reservation | None = None


class Admission:
    """Looks keys up, holds requests against their limits, and settles at the end of each."""

    def __init__(self, keyring: Keyring, limiter: Limiter, settings: ApiSettings) -> None:
        self._keyring = keyring
        self._limiter = limiter
        self._settings = settings
        self._background_tasks = BackgroundTasks()

    async def identify(self, headers: Lookup) -> ApiKey | None:
        """Return the key in ``headers``; ``None`` where the service is open.

        Both ``Authorization: Bearer`` and Azure's ``api-key`` are read, and one valid secret is enough. Raises
        :class:`RequestRefused`.
        """
        if not self._keyring.loaded:
            try:
                await self._keyring.refresh()
            except (RedisError, OSError) as error:
                raise store_unavailable() from error
        if self._keyring.open:
            return None
        secrets = _secrets(headers)
        if not secrets:
            raise refuse(
                ProblemKind.UNAUTHORIZED,
                "No API key was sent. Send yours in a header: 'Authorization: Bearer YOUR_KEY' or 'api-key: YOUR_KEY'.",
            )
        key = self._keyring.find(secrets)
        if key is None:
            raise refuse(
                ProblemKind.UNAUTHORIZED,
                f"Incorrect API key provided: {masked(secrets[0])}. Ask whoever runs this service for a valid one.",
            )
        return key

    async def admit(
        self, key: ApiKey | None, request: ChatRequest, headers: Lookup, *, alias: str | None = None
    ) -> Ticket:
        """Hold ``request`` against what ``key`` allows. The ticket must be settled at the end.

        ``alias`` is the client's name for the model where it is another than the model's own; a key may allow either.
        Raises :class:`RequestRefused`; where a limit refuses it is a :class:`LimitReached`.
        """
        wait = self._queue_timeout(key, headers)
        if key is None:
            return Ticket(request, queue_timeout=wait)
        if not any(key.may_use(name) for name in (request.model, alias) if name):
            asked = (alias or request.model)[:64]
            raise refuse(ProblemKind.FORBIDDEN, f"This API key does not have access to model '{asked}'.")
        request = _banded(request, key)
        if not key.limited:
            return Ticket(request, key.id, wait)
        reservation = Reservation(key, self._limiter.new_name(), _counted_tokens(request, key))
        headers_, refusal = await self._reserve(reservation)
        if refusal is not None:
            raise LimitReached(reservation, refusal, headers_)
        return Ticket(request, key.id, wait, headers_, reservation)

    def settle(self, reservation: Reservation, request: ChatRequest, tally: UsageRecorder) -> None:
        """Put right the tokens of a ``request`` that is over, and free its place; returns at once."""
        if not tally.left_to_another:
            self._background_tasks.run(self._settle_charged(reservation, request, tally), "settle")

    def settle_for(self, key_id: str, name: str, tokens: int, request: ChatRequest, tally: UsageRecorder) -> None:
        """Settle a reservation that another replica has made, if its key is still known; returns at once."""
        key = self._keyring.named(key_id)
        if key is not None:
            self.settle(Reservation(key, name, tokens), request, tally)

    async def aclose(self) -> None:
        """Wait until the last settlements are sent, though not for a store that is away: what they free expires."""
        await self._background_tasks.finish(_CLOSE_TIMEOUT)

    def _queue_timeout(self, key: ApiKey | None, headers: Lookup) -> float | None:
        allowed = key.queue_timeout if key is not None else None
        wanted = headers.get(QUEUE_TIMEOUT_HEADER)
        if not wanted:
            return allowed
        try:
            seconds = float(wanted)
        except ValueError:
            seconds = math.nan
        if not (0 < seconds < math.inf):
            raise refuse(
                ProblemKind.INVALID,
                f"The header '{QUEUE_TIMEOUT_HEADER}' must be a positive number of seconds, but got '{wanted[:32]}'.",
                param=QUEUE_TIMEOUT_HEADER,
            )
        return min(seconds, allowed or self._settings.queue_timeout)

    async def _reserve(self, reservation: Reservation) -> tuple[Mapping[str, str], Refusal | None]:
        if reservation.tokens > (reservation.key.tokens_per_minute or math.inf):
            return {}, Refusal("tokens", None)
        try:
            refusal, counts = await self._limiter.reserve(reservation)
        except (RedisError, OSError) as error:
            raise store_unavailable() from error
        except asyncio.CancelledError:
            # The reservation may have been made all the same.
            self._background_tasks.run(self._settle(reservation, reservation.tokens), "settle")
            raise
        return rate_headers(counts), refusal

    async def _settle_charged(self, reservation: Reservation, request: ChatRequest, tally: UsageRecorder) -> None:
        await self._settle(reservation, await tokens_to_charge(request, tally))

    async def _settle(self, reservation: Reservation, used: int) -> None:
        try:
            await self._limiter.settle(reservation, used)
        except (RedisError, OSError) as error:
            logger.log(outage.store.level, "a request of %s is not settled: %s", reservation.key.id, error)


class LimitReached(RequestRefused):
    """A limit of the key refuses the request; ``headers`` tell the state of its limits."""

    def __init__(self, reservation: Reservation, refusal: Refusal, headers: Mapping[str, str]) -> None:
        super().__init__(_limit_problem(reservation, refusal).problem)
        self.headers = headers


def _limit_problem(reservation: Reservation, refusal: Refusal) -> RequestRefused:
    key = reservation.key
    limits: dict[LimitName, int | None] = {
        "requests": key.requests_per_minute,
        "tokens": key.tokens_per_minute,
        "concurrency": key.concurrency,
    }
    reached = f"Rate limit reached for this API key: {limits[refusal.limit]} {_LIMIT_WORDS[refusal.limit]}."
    if refusal.limit == "tokens" and refusal.wait is None:
        return refuse(
            ProblemKind.TOKENS_LIMITED,
            f"Request too large: it may take {reservation.tokens} tokens, and this API key has "
            f"{key.tokens_per_minute} tokens per minute. Send a shorter prompt, or ask for fewer tokens.",
        )
    if refusal.wait is None:
        advice, wait = "when one of them has ended", _RETRY_SOON
    else:
        advice, wait = f"in {refusal.wait:.3g}s", refusal.wait
    return refuse(_KINDS[refusal.limit], f"{reached} Please try again {advice}.", retry_after=wait)


def _secrets(headers: Lookup) -> list[str]:
    scheme, _, bearer = (headers.get("authorization") or "").partition(" ")
    found = [bearer.strip() if scheme.lower() == "bearer" else "", (headers.get("api-key") or "").strip()]
    return [secret for secret in found if secret]


def _banded(request: ChatRequest, key: ApiKey) -> ChatRequest:
    """Put a request that names no band into its key's, and one that asks for a higher one too."""
    if request.tier in (None, "auto"):
        tier: Tier | None = request.tier if key.priority == "default" else key.priority
    else:
        tier = request.tier if _RANKS[request.tier] <= _RANKS[key.priority] else key.priority
    return request if tier == request.tier else msgspec.structs.replace(request, tier=tier)


def _counted_tokens(request: ChatRequest, key: ApiKey) -> int:
    """Return the tokens to reserve: each prompt once, as usage has it, and every answer at its longest.

    An answer without a limit is counted by a guess, and a guess alone refuses nobody for good.
    """
    answers = jobs_per_prompt(request) * max(1, len(request.prompts))
    counted = prompt_cost(request) + answers * answer_cost(request)
    if request.sampling.max_tokens is None and key.tokens_per_minute is not None:
        return min(counted, max(prompt_cost(request), key.tokens_per_minute))
    return counted
