"""Tells a hung engine from a busy one, by how long its own steps have taken lately."""

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

SLOWER = 10.0
"""Times the longest of the engine's recent steps after which a step counts as hung."""

LEAST_PATIENCE = 3.0
"""Seconds of silence that are no hang yet, however short the steps are: machines hiccup."""

MEMORY = 10
"""Minutes for which a step is remembered."""

_LONGEST_LOOK = 0.5
"""Seconds of silence that one look counts at most. Looks come more often than that; when they did not, this process was
stopped or starved itself, and its engine with it."""

_WORTH_ASKING = 0.1
"""Seconds of silence from which on it is asked how many of them the engine had for itself."""

_SETTLED = 2.0
"""Seconds of silence after which a new sequence can't be its cause; before, the engine may have begun it unheard."""


@dataclass(slots=True)
class _Minute:
    """What was seen in one minute: the longest step (seconds), and the longest prompt that was taken in (tokens)."""

    number: int
    step: float = 0.0
    prompt: int = 0


class Watchdog:
    """Is told what the engine gets and says, and asked regularly how long it has been silent and may be.

    Until steps have been seen, and while the engine takes in a prompt that is longer than all of the last ten minutes,
    it may be silent for ``bound`` seconds; otherwise for ten times its longest step of these minutes, though never
    for less than 3 s nor more than ``bound``. Time in which it waited for a CPU is not silence: an engine on a crowded
    machine is slow, not hung, and its requests are not to blame.
    """

    def __init__(
        self,
        bound: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        cpu_time: Callable[[float], float] = lambda elapsed: elapsed,
    ) -> None:
        """``cpu_time`` tells how many of the seconds since it was last asked the engine could use."""
        self._bound = bound
        self._clock = clock
        self.cpu_time = cpu_time
        self._running: set[int] = set()
        self._beginning: dict[int, tuple[int, float]] = {}
        """Tokens of the sequences that have had no output yet, and the silence (seconds) into which each came."""
        self._minutes: deque[_Minute] = deque()
        self._silence = 0.0
        self._looked = clock()

    def add(self, number: int, tokens: int) -> None:
        """The engine gets a sequence of so many ``tokens`` to begin with."""
        self._beginning[number] = (tokens, self.look())
        self._running.add(number)

    def discard(self, number: int) -> None:
        """The engine no longer has this sequence."""
        self._running.discard(number)
        self._beginning.pop(number, None)

    @property
    def busy(self) -> bool:
        """Whether the engine has a sequence."""
        return bool(self._running)

    def heard(self, numbers: Iterable[int]) -> None:
        """The engine has made a step, with outputs for these sequences."""
        step = self.look()
        self._silence = 0.0
        minute = self._this_minute()
        minute.step = max(minute.step, step)
        if self._beginning:
            for number in numbers:
                minute.prompt = max(minute.prompt, self._beginning.pop(number, (0, 0.0))[0])
            self._beginning = {number: (tokens, 0.0) for number, (tokens, _) in self._beginning.items()}

    def look(self) -> float:
        """The seconds for which the engine has had work and said nothing, as far as this process ran itself."""
        now = self._clock()
        elapsed, self._looked = now - self._looked, now
        if not self._running:
            self._silence = 0.0
            return 0.0
        if elapsed >= _WORTH_ASKING:
            elapsed = self.cpu_time(elapsed)
        self._silence += min(elapsed, _LONGEST_LOOK)
        return self._silence

    @property
    def patience(self) -> float:
        """The seconds for which the engine may be silent now."""
        oldest = self._minute_number() - MEMORY
        minutes = [minute for minute in self._minutes if minute.number > oldest]
        longest_prompt = max((minute.prompt for minute in minutes), default=0)
        if any(tokens > longest_prompt and since < _SETTLED for tokens, since in self._beginning.values()):
            return self._bound
        longest_step = max((minute.step for minute in minutes), default=self._bound)
        return min(self._bound, max(LEAST_PATIENCE, SLOWER * longest_step))

    def _this_minute(self) -> _Minute:
        number = self._minute_number()
        if not self._minutes or self._minutes[-1].number != number:
            self._minutes.append(_Minute(number))
            while self._minutes[0].number <= number - MEMORY:
                self._minutes.popleft()
        return self._minutes[-1]

    def _minute_number(self) -> int:
        return int(self._clock() // 60)
