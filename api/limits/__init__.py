"""Rate limits of API keys and teams: requests per minute, tokens per minute and concurrent requests."""

from api.limits.limiter import Counts, Limiter, LimitName, Refusal, Reservation

__all__ = ["Counts", "LimitName", "Limiter", "Refusal", "Reservation"]
