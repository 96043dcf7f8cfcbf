"""Limits of each API key: requests and tokens per minute, and requests at the same time."""

from api.limits.limiter import Counts, Limiter, LimitName, Refusal, Reservation

__all__ = ["Counts", "LimitName", "Limiter", "Refusal", "Reservation"]
