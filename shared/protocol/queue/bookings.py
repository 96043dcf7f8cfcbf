"""Bookings: where the usage of ended jobs is counted, by day and, for budgets, by key and team (``book.lua``)."""

from collections import defaultdict
from collections.abc import Iterator
from importlib.resources import files

from shared.protocol.usage import DAY, MOST_FIELDS, REST, RETENTION, SPENT_DAYS, UsageCounts
from shared.redis import keys
from shared.redis.raw_connection import Argument

BOOK = (files("shared.protocol.queue") / "book.lua").read_text()


class Bookings:
    """Collects what ended jobs of ``model`` have used."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._days: dict[int, list[Argument]] = defaultdict(list)
        self._owners: dict[str, list[Argument]] = defaultdict(list)
        self._today = 0

    def add(self, entry: bytes, name: str, counts: UsageCounts) -> None:
        """Add an entry: its id in the stream, which has its time, "ACCOUNT KIND", and what was used."""
        self._today = day = int(entry.partition(b"-")[0]) // 1000 // DAY
        account, _, kind = name.rpartition(" ")
        self._days[day] += (entry, f"{name} {self._model}", f"{REST} {kind} {REST}", counts.encode())
        tokens = counts.prompt_tokens + counts.completion_tokens
        if account and tokens:
            key, _, team = account.partition("@")
            for owner in (key, f"team:{team}") if team else (key,):
                self._owners[owner] += (entry, day, day, tokens)

    def calls(self) -> Iterator[tuple[list[str], list[Argument]]]:
        """Yield the keys and arguments of the calls of the script."""
        for day, entries in self._days.items():
            yield [keys.usage(str(day)), keys.USAGE_BOOKED], [self._model, RETENTION, MOST_FIELDS, "", *entries]
        for owner, entries in self._owners.items():
            names = [keys.spent(owner), keys.spent_booked(owner)]
            first = self._today - SPENT_DAYS + 1
            yield names, [self._model, SPENT_DAYS * DAY, MOST_FIELDS, first, *entries]
