"""Admission: checks that a request can be served and that its API key allows it, and reserves its rate limits."""

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from redis.exceptions import RedisError

from api.chat.choices import MAX_RESPONSE_BYTES, check_response_size, jobs_per_prompt, most_tokens
from api.chat.settlement import Settlement
from api.dialects.base.interface import Lookup
from api.dialects.base.unsupported import also_ignored
from api.keys import ApiKey, Team
from api.keys.record import Limited
from api.limits import Counts, Limiter, LimitName, Refusal, Reservation
from api.models.directory import Directory
from api.records.errors import store_unavailable
from shared.protocol.cost import LARGEST, prompt_cost, response_cost
from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from shared.protocol.queue import EQUAL, Weights
from shared.protocol.request import ChatRequest, Tier, fill_in, formed
from shared.protocol.usage import account_of
from shared.runtime.settings import ApiSettings

QUEUE_TIMEOUT_HEADER = "x-queue-timeout"

_RETRY_SOON = 1.0
_RANKS: dict[Tier | None, int] = {"batch": -1, "flex": 0, "default": 1, "auto": 1, None: 1, "priority": 2}
_LIMITS = {
    "requests": (ProblemKind.RATE_LIMITED, "requests_per_minute", "requests per minute"),
    "tokens": (ProblemKind.TOKENS_LIMITED, "tokens_per_minute", "tokens per minute"),
    "concurrency": (ProblemKind.RATE_LIMITED, "concurrency", "requests at a time"),
}
"""Of each rate limit: the problem of exceeding it, its field in records of keys and teams, and its unit."""


@dataclass(frozen=True, slots=True)
class AdmittedRequest:
    """An admitted request.

    ``tenant`` is the id of the API key, or empty without one, ``team`` that of its team. ``weights`` are those in fair
    queueing. ``counts`` is the state of the rate limits.
    """

    request: ChatRequest
    tenant: str = ""
    team: str = ""
    weights: Weights = EQUAL
    queue_timeout: float | None = None
    counts: Mapping[LimitName, Counts] = field(default_factory=dict)
    reservation: Reservation | None = None

    @property
    def account(self) -> str:
        """Whom the store charges."""
        return account_of(self.tenant, self.team)


@dataclass(frozen=True, slots=True)
class Admission:
    directory: Directory
    limiter: Limiter
    settlement: Settlement
    settings: ApiSettings
    team_of: Callable[[ApiKey], Team | None]
    """Returns the team of a key, if it has one."""

    async def admit(self, key: ApiKey | None, request: ChatRequest, headers: Lookup) -> AdmittedRequest:
        """Check ``request`` against the models that are served, and the model list, priority and limits of ``key`` and
        its team; reserve its tokens and a concurrency place.

        The reservation must be settled when the request ends. Raises :class:`RequestRefused`, or its subclass
        :class:`LimitReached` when a rate limit is exceeded.
        """
        asked, own = request.model, await self.directory.own_name(request.model)
        defaults = fill_in(self.directory.fleet.sampling_defaults(own), request.defaults)
        request = msgspec.structs.replace(request, model=own, defaults=defaults)
        team = self.team_of(key) if key is not None else None
        if key is not None and not request.work.metered:
            key = key.without_rates()
        if team is not None and (request.tier == "batch" or not request.work.metered):
            team = team.without_rates()
        wait = self._queue_timeout(key, team, headers)
        # A key may allow a model by its own name or by an alias.
        if key is not None and not (key.may_use(own) or key.may_use(asked)):
            raise refuse(ProblemKind.FORBIDDEN, f"This API key does not have access to model '{asked[:64]}'.")
        self.directory.check_request(request, key)
        context = self.directory.fleet.context_length(own) or LARGEST
        if not self.directory.fleet.has_logits(own):
            request = _without_budget(request)
        request = _within(request, context)
        check_response_size(request)
        own_default = _own(key, team, "default_max_tokens") or defaults.max_tokens
        maximum = own_default or self.settings.default_max_tokens or LARGEST
        maximum = min(maximum, most_tokens(request, MAX_RESPONSE_BYTES))
        if key is None:
            return AdmittedRequest(_limited(request, maximum), queue_timeout=wait)
        owners = (key,) if team is None else (key, team)
        tokens = _counted_tokens(request, context, owners) if request.work.metered else 0
        admitted = AdmittedRequest(
            _limited(_with_tier(request, key), maximum),
            key.id,
            "" if team is None else team.id,
            Weights(key.weight or 1, team.weight or 1 if team is not None else 1),
            wait,
        )
        if not any(owner.is_limited for owner in owners):
            return admitted
        reservation = Reservation(key, self.limiter.new_name(), tokens, team)
        counts, refusal = await self._reserve(reservation)
        if refusal is not None:
            raise LimitReached(reservation, refusal, counts)
        return replace(admitted, counts=counts, reservation=reservation)

    def _queue_timeout(self, key: ApiKey | None, team: Team | None, headers: Lookup) -> float | None:
        allowed: float | None = _own(key, team, "queue_timeout")
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
        return min(seconds, allowed or self.settings.queue_timeout)

    async def _reserve(self, reservation: Reservation) -> tuple[Mapping[LimitName, Counts], Refusal | None]:
        for owner in reservation.limited:
            if reservation.tokens > (owner.tokens_per_minute or math.inf):
                return {}, Refusal("tokens", None, by_team=owner is reservation.team)
        try:
            refusal, counts = await self.limiter.reserve(reservation)
        except (RedisError, OSError) as error:
            raise store_unavailable(error) from error
        except asyncio.CancelledError:
            # The script may have run nevertheless.
            self.settlement.cancel(reservation)
            raise
        return counts, refusal


class LimitReached(RequestRefused):
    """A limit of the key or of its team is exceeded. ``counts`` is the state of their rate limits."""

    def __init__(self, reservation: Reservation, refusal: Refusal, counts: Mapping[LimitName, Counts]) -> None:
        super().__init__(_limit_problem(reservation, refusal).problem)
        self.counts = counts


def _limit_problem(reservation: Reservation, refusal: Refusal) -> RequestRefused:
    owner = reservation.limited[refusal.by_team]
    name = f"team '{owner.name or owner.id}' of this API key" if refusal.by_team else "this API key"
    if refusal.limit in ("tokens_per_day", "tokens_per_month"):
        budget = f"its budget of {getattr(owner, refusal.limit)} {refusal.limit.replace('_', ' ')}"
        if refusal.wait is None:
            return refuse(
                ProblemKind.RATE_LIMITED,
                f"Requests in progress of {name} may use up {budget}. Please try again when one of them has ended.",
                retry_after=_RETRY_SOON,
            )
        reset = datetime.fromtimestamp(round((time.time() + refusal.wait) / 60) * 60, UTC)
        return refuse(
            ProblemKind.BUDGET,
            f"{name[0].upper()}{name[1:]} has used up {budget}. "
            f"It can be used again from {reset:%Y-%m-%dT%H:%M:%SZ} on.",
            retry_after=refusal.wait,
        )
    if refusal.limit == "tokens" and refusal.wait is None:
        return refuse(
            ProblemKind.TOKENS_LIMITED,
            f"Request too large: it may use {reservation.tokens} tokens, and {name} is limited to "
            f"{owner.tokens_per_minute} tokens per minute. Send a shorter prompt, or ask for fewer tokens.",
        )
    kind, field, unit = _LIMITS[refusal.limit]
    advice = "when one of them has ended" if refusal.wait is None else f"in {refusal.wait:.3g}s"
    message = f"Rate limit reached for {name}: {getattr(owner, field)} {unit}. Please try again {advice}."
    return refuse(kind, message, retry_after=_RETRY_SOON if refusal.wait is None else refusal.wait)


def _with_tier(request: ChatRequest, key: ApiKey) -> ChatRequest:
    """Set the request's tier to its key's priority if it names none, or one above the key's priority."""
    if request.tier in (None, "auto"):
        tier: Tier | None = request.tier if key.priority == "default" else key.priority
    else:
        tier = request.tier if _RANKS[request.tier] <= _RANKS[key.priority] else key.priority
    return request if tier == request.tier else msgspec.structs.replace(request, tier=tier)


def _without_budget(request: ChatRequest) -> ChatRequest:
    """Remove a budget of reasoning that is not strict, and name it in a header unless it is no limit."""
    budget = request.sampling.thinking_budget
    if budget is None or budget.tokens >= LARGEST:
        return request
    sampling = msgspec.structs.replace(request.sampling, thinking_budget=None)
    request = msgspec.structs.replace(request, sampling=sampling)
    return formed(request, notes=also_ignored(request.response.notes, budget.param))


def _within(request: ChatRequest, context: int) -> ChatRequest:
    """Lower ``max_tokens`` to the model's ``context``. Only the worker knows how much of it the prompt takes."""
    if (request.sampling.max_tokens or 0) <= context:
        return request
    return msgspec.structs.replace(request, sampling=msgspec.structs.replace(request.sampling, max_tokens=context))


def _limited(request: ChatRequest, maximum: int) -> ChatRequest:
    """Set the request's ``max_tokens`` to ``maximum`` if it has none."""
    sampling = request.sampling
    if maximum >= LARGEST or sampling.max_tokens is not None:
        return request
    sampling = msgspec.structs.replace(sampling, max_tokens=max(maximum, sampling.min_tokens or 0))
    return msgspec.structs.replace(request, sampling=sampling)


def _own(key: ApiKey | None, team: Team | None, limit: Literal["queue_timeout", "default_max_tokens"]) -> Any:
    """Return the ``limit`` of the key, or if it has none, that of its team, or ``None``."""
    return getattr(key, limit, None) or getattr(team, limit, None)


def _counted_tokens(request: ChatRequest, context: int, owners: Sequence[Limited]) -> int:
    """Return the tokens to reserve: every prompt once, as in the usage, and every choice at its maximum length.

    A choice and its prompt have at most ``context`` tokens. Without ``max_tokens`` the length is an estimate. It is
    capped by the lowest limit, so that an estimate alone never makes a request too large.
    """
    responses = jobs_per_prompt(request) * max(1, len(request.prompts))
    counted = prompt_cost(request) + responses * response_cost(request)
    counted = min(counted, responses * context * request.sampling.beams)
    if request.sampling.max_tokens is None:
        lowest = min(owner.tokens_per_minute or counted for owner in owners)
        return min(counted, max(prompt_cost(request), lowest))
    return counted
