"""The watchdog: distinguishes a hung engine from a busy one by the duration of its recent steps."""

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

SLOWDOWN_FACTOR = 10.0
"""A step counts as hung after this multiple of the longest recent step."""

MIN_TIMEOUT = 3.0
"""Minimum timeout in seconds, however short the recent steps are."""

RECENT_MINUTES = 10
"""Minutes for which a step counts as recent."""

_MAX_CHECK = 0.5
"""Maximum seconds of silence added by one check. Checks are more frequent than that unless this process itself was
stopped or starved, and then its engine was too."""

_CPU_TIME_FROM = 0.1
"""Seconds of silence from which on the engine's CPU time is read."""

PIXELS_PER_SECOND = 2**14
"""Minimum rate at which a slow CPU encodes images. A slower encoder counts as hung."""

PREFILL_RATE = 8
"""Minimum rate of a prefill in tokens per second. A slower one counts as hung."""

_SETTLED = 2.0
"""A sequence added after this many seconds of silence can't be its cause; before, the engine may have started it."""


@dataclass(slots=True)
class _Minute:
    """Maxima of one minute: the longest step (seconds) and the longest prefill (tokens)."""

    number: int
    step: float = 0.0
    prompt: int = 0


class Watchdog:
    """Measures how long the engine has been silent, and how long it may be.

    The timeout is ten times the longest step of the last ten minutes, at least 3 and at most ``max_timeout`` seconds.
    It is ``max_timeout`` before the first step, and during a prefill that is longer than any of the last ten minutes.
    Images extend it by the time that encoding them may take. Time spent waiting for a CPU is not silence: on an
    overloaded machine, the engine is slow, not hung.
    """

    def __init__(
        self,
        max_timeout: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        cpu_time: Callable[[float], float] = lambda elapsed: elapsed,
    ) -> None:
        """``cpu_time`` maps the seconds elapsed since its last call to those that the engine could use."""
        self._max_timeout = max_timeout
        self._clock = clock
        self.cpu_time = cpu_time
        self._running: set[int] = set()
        self._encoding: dict[int, float] = {}
        """Seconds that encoding the images of sequences without output may take."""
        self._prefilling: dict[int, tuple[int, float]] = {}
        """Sequences without output: their prompt tokens, and the silence in seconds when they were added."""
        self._minutes: deque[_Minute] = deque()
        self._silence = 0.0
        self._checked_at = clock()

    def add(self, number: int, tokens: int, encoding: float = 0.0) -> None:
        """Record a new sequence with a prompt of ``tokens`` tokens. ``encoding``: seconds that its images may take, or
        its prompt, if a step computes all of it."""
        if encoding:
            self._encoding[number] = encoding
        self._prefilling[number] = (tokens, self.silence())
        self._running.add(number)

    def discard(self, number: int) -> None:
        """Record the end of a sequence."""
        self._running.discard(number)
        self._prefilling.pop(number, None)
        self._encoding.pop(number, None)

    def on_report(self, numbers: Iterable[int]) -> None:
        """Record a report of the engine, with outputs for these sequences."""
        step = self.silence()
        self._silence = 0.0
        minute = self._this_minute()
        minute.step = max(minute.step, step)
        if self._prefilling:
            for number in numbers:
                minute.prompt = max(minute.prompt, self._prefilling.pop(number, (0, 0.0))[0])
                self._encoding.pop(number, None)
            self._prefilling = {number: (tokens, 0.0) for number, (tokens, _) in self._prefilling.items()}

    def silence(self) -> float:
        """Return for how many seconds the engine has had work without reporting."""
        now = self._clock()
        elapsed, self._checked_at = now - self._checked_at, now
        if not self._running:
            self._silence = 0.0
            return 0.0
        if elapsed >= _CPU_TIME_FROM:
            elapsed = self.cpu_time(elapsed)
        self._silence += min(elapsed, _MAX_CHECK)
        return self._silence

    @property
    def timeout(self) -> float:
        """The current timeout in seconds."""
        return self._step_timeout() + max(self._encoding.values(), default=0.0)

    def _step_timeout(self) -> float:
        oldest = self._minute_number() - RECENT_MINUTES
        minutes = [minute for minute in self._minutes if minute.number > oldest]
        longest_prompt = max((minute.prompt for minute in minutes), default=0)
        if any(tokens > longest_prompt and since < _SETTLED for tokens, since in self._prefilling.values()):
            return self._max_timeout
        longest_step = max((minute.step for minute in minutes), default=self._max_timeout)
        return min(self._max_timeout, max(MIN_TIMEOUT, SLOWDOWN_FACTOR * longest_step))

    def _this_minute(self) -> _Minute:
        number = self._minute_number()
        if not self._minutes or self._minutes[-1].number != number:
            self._minutes.append(_Minute(number))
            while self._minutes[0].number <= number - RECENT_MINUTES:
                self._minutes.popleft()
        return self._minutes[-1]

    def _minute_number(self) -> int:
        return int(self._clock() // 60)
