"""The simulated engine: random words at a fixed rate, and faults on demand."""

import os
import random
import re
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from functools import cache
from typing import NoReturn
from zlib import crc32

import msgspec

from shared.protocol.errors import ProblemKind, refuse
from worker.engine.checks import check_logits, max_output_tokens
from worker.engine.generation import Generation
from worker.engine.options import EngineOptions
from worker.engine.protocol import (
    EngineInfo,
    EngineLoadError,
    EngineSequence,
    Gauges,
    PromptOutput,
    SequenceRefused,
    StepOutput,
)
from worker.engine.text import Vocabulary
from worker.grammar.lengths import LengthChecker

_TOKENS = 64
"""Length of an answer by default."""

_DIRECTIVE = re.compile(
    r"\[\[((?:fail|crash|hang) load|see images|vocabulary|(?:exhaust|crash|hang) at|tokens|context|load|say|refuse"
    r"|crash)"
    r"(?: (.*?))?\]\]",
    re.DOTALL,
)
_COUNTED = {"tokens", "context", "vocabulary", "exhaust at", "crash at", "hang at"}


class Directives(msgspec.Struct, frozen=True, kw_only=True):
    """Directives in prompts for the simulated engine, for tests of failure and load.

    A directive may appear anywhere in the prompt, in double square brackets. The last one of a kind applies.
    ``N`` counts the generated tokens of the whole output, from 1.

    =====================  ==================================================================================
    ``[[tokens N]]``       the answer has N tokens, unless max_tokens is lower
    ``[[say TEXT]]``       the answer is TEXT (which holds no ``]]``), unless max_tokens is lower
    ``[[refuse]]``         the engine refuses the sequence
    ``[[exhaust at N]]``   the KV cache is full after N tokens
    ``[[crash at N]]``     the process dies after N tokens; a sequence resumed there continues
    ``[[crash]]``          the process dies at the sequence's first step, however often it is resumed
    ``[[hang at N]]``      the process never returns from the step after N tokens; resumed as for crash
    =====================  ==================================================================================

    Directives about loading, in place of the model's path:

    =====================  ==================================================================================
    ``[[fail load]]``      the model can't be loaded
    ``[[crash load]]``     the process dies while it loads
    ``[[hang load]]``      loading never ends
    ``[[see images]]``     the model accepts images
    ``[[tokens N]]``       answers have N tokens instead of 64
    ``[[context N]]``      the context length is N tokens instead of 8,192
    ``[[load SECONDS]]``   loading takes so long
    ``[[vocabulary N]]``   the words of the vocabulary are rotated by N: the same token ids are another text
    =====================  ==================================================================================

    Fields are None or False without their directive.
    """

    tokens: int | None = None
    say: str | None = None
    refuse: bool = False
    exhaust_at: int | None = None
    crash_at: int | None = None
    crash: bool = False
    hang_at: int | None = None
    fail_load: bool = False
    crash_load: bool = False
    hang_load: bool = False
    see_images: bool = False
    context: int = 8192
    load: float = 0.0
    vocabulary: int = 0


def parse_directives(text: str) -> Directives:
    """Return the directives in ``text``. Unknown and incomplete directives are plain text."""
    found: dict[str, float | str | bool] = {}
    for name, argument in _DIRECTIVE.findall(text):
        field = name.replace(" ", "_")
        if name in _COUNTED:
            if argument.isdecimal():
                found[field] = int(argument)
        elif name == "load":
            with suppress(ValueError):
                found[name] = float(argument)
        elif name == "say":
            found[field] = argument
        elif not argument:
            found[field] = True
    return msgspec.convert(found, Directives)


_WORDS = (
    "the a of and to in is it that for as with on by from at this one two three red green blue old new "
    "small large first last water stone tree river house road light wind fire song day night morning "
    "evening winter summer bird horse fish bread apple door window book letter music silence bright "
    "quiet slow quick warm cold walks sings turns falls rises opens closes finds keeps gives takes"
)
WORDS = tuple(" " + word for word in _WORDS.split())
FIRST_WORD = 256
"""Ids below are bytes."""

END = FIRST_WORD + len(WORDS)
"""Id of the end-of-text token. No text encodes to it."""

_WORD_IDS = {word: FIRST_WORD + index for index, word in enumerate(WORDS)}
_PARTS = re.compile(r" ?\w+|\W", re.DOTALL)


def encode(text: str) -> tuple[int, ...]:
    """Return the token ids of ``text``, from which :class:`~worker.engine.text.TextStream` restores it.

    Raises :class:`UnicodeEncodeError` for lone surrogates.
    """
    ids: list[int] = []
    for part in _PARTS.findall(text):
        word = _WORD_IDS.get(part)
        if word is None:
            ids.extend(part.encode())
        else:
            ids.append(word)
    return tuple(ids)


def decode(tokens: tuple[int, ...]) -> str:
    """Return the text of ``tokens`` without the end-of-text token."""
    pieces = simulated_vocabulary()
    return b"".join(pieces.piece(token) for token in tokens if token != END).decode(errors="replace")


@cache
def simulated_vocabulary(rotation: int = 0) -> Vocabulary:
    """Return the vocabulary (cached): all bytes, some common words, and an end-of-text token.

    Any text can be encoded. Characters outside ASCII are split over several tokens, as in real vocabularies.
    ``rotation`` gives the words other ids.
    """
    pieces = [bytes([byte]) for byte in range(FIRST_WORD)]
    first = rotation % len(WORDS)
    pieces += [word.encode() for word in WORDS[first:] + WORDS[:first]]
    pieces.append(b"<|end|>")
    return Vocabulary(pieces, {END})


class SimulatedOptions(EngineOptions, frozen=True, kw_only=True):
    """``sim_step`` is in seconds."""

    sim_step: float


class SimulatedEngine:
    """An :class:`~worker.engine.protocol.Engine` without a model, for tests of load and failure.

    A greedy output depends on the prompt's token ids only, so a resumed sequence continues identically. A sampled one
    (a temperature above 0) continues differently; :func:`is_one_sample` says whether a text is from one sequence. A
    step takes ``sim_step`` seconds for any number of sequences.
    """

    def __init__(self, options: SimulatedOptions, progress: Callable[[str], None]) -> None:
        """Raises :class:`EngineLoadError` if ``options.path`` directs it to."""
        started = time.monotonic()
        progress("loading a simulated model")
        faults = parse_directives(options.path)
        if faults.fail_load:
            raise EngineLoadError("the simulated model can't be loaded: its path says [[fail load]]")
        if faults.crash_load:
            _crash()
        if faults.hang_load:
            _hang()
        time.sleep(faults.load)
        self._vocabulary = simulated_vocabulary(faults.vocabulary)
        self._step_time = options.sim_step
        self._default_tokens = _TOKENS if faults.tokens is None else faults.tokens
        self._running: dict[int, _SimulatedSequence] = {}
        self._preempted: dict[int, _SimulatedSequence] = {}
        self._preemptions = 0
        self._steps = 0
        self._tokens = 0
        self.engine_info = EngineInfo(
            context_length=options.context_length,
            cache_tokens=options.context_length * options.max_batch,
            slots=options.slots(options.context_length * options.max_batch),
            fingerprint="fp_simulated",
            device="SIMULATED",
            load_seconds=time.monotonic() - started,
            vocabulary=self._vocabulary.digest(options.chat_template + options.prompts),
            engine="simulated",
            reason="the setting --engine",
        )

    def add(self, sequence: EngineSequence) -> None:
        """Add a sequence to the batch.

        Raises :class:`RequestRefused` for ``[[refuse]]``, for a prompt that is too long, for a constraint without
        ``[[say]]``, for a beam search, and for fields that need logits.
        """
        prompt_directives = parse_directives(decode(sequence.prompt))
        if prompt_directives.refuse:
            raise refuse(ProblemKind.INVALID, "The prompt says [[refuse]].")
        check_logits(sequence.sampling, len(WORDS), hooked=False)
        if sequence.sampling.beams > 1:
            raise refuse(ProblemKind.INVALID, "The simulated engine has no beam search.", param="best_of")
        if sequence.grammar is not None and prompt_directives.say is None:
            raise refuse(
                ProblemKind.INVALID,
                "The simulated engine follows no grammar. Put the answer into the prompt: [[say TEXT]].",
            )
        room = max_output_tokens(
            sequence,
            vocabulary=len(self._vocabulary),
            context_length=self.engine_info.context_length,
            cache_tokens=self.engine_info.cache_tokens,
        )
        self._running[sequence.number] = _SimulatedSequence(
            sequence, prompt_directives, self._vocabulary, room, self._default_tokens
        )

    def cancel(self, number: int) -> None:
        """Remove a sequence. One that is not running is ignored."""
        self._running.pop(number, None)
        self._preempted.pop(number, None)

    def preempt(self, numbers: Collection[int]) -> None:
        """Take these sequences out of the batch, and resume the others."""
        self._running |= {
            number: self._preempted.pop(number) for number in tuple(self._preempted) if number not in numbers
        }
        preempted = {number: self._running.pop(number) for number in numbers if number in self._running}
        self._preemptions += len(preempted)
        self._preempted |= preempted

    def step(self) -> list[StepOutput]:
        """Sleep for the duration of a step, then generate one token per sequence."""
        if not self._running:
            return []
        for sequence in self._running.values():
            sequence.trigger_fault()
        time.sleep(self._step_time)
        outputs = [sequence.advance() for sequence in self._running.values()]
        for output in outputs:
            self._tokens += len(output.delta.tokens) if output.delta else 0
            if output.reason is not None:
                del self._running[output.number]
        self._steps += 1
        return outputs

    def prompts(self) -> list[PromptOutput]:
        """Return nothing: this engine has no log probabilities of prompts."""
        return []

    def refused(self) -> list[SequenceRefused]:
        """Return nothing: this engine refuses sequences only when they are added."""
        return []

    def busy(self) -> bool:
        """Whether sequences are running."""
        return bool(self._running)

    def finish_loading(self) -> Iterator[bool]:
        """There is nothing left to make."""
        return iter(())

    def gauges(self) -> Gauges:
        """Return the metrics of the simulated batch and cache."""
        cached = sum(sequence.length for sequence in self._running.values())
        return Gauges(
            requests=len(self._running),
            scheduled=len(self._running),
            cache_usage=cached / self.engine_info.cache_tokens,
            steps=self._steps,
            tokens=self._tokens,
            preemptions=self._preemptions,
        )


class _SimulatedSequence:
    """A running sequence, with the directives of its prompt."""

    def __init__(
        self, sequence: EngineSequence, prompt_directives: Directives, words: Vocabulary, room: int, default_tokens: int
    ) -> None:
        self._directives = prompt_directives
        self._resumed_at = len(sequence.generated)
        self._prompt_length = len(sequence.prompt)
        self._text_tokens = None if prompt_directives.say is None else encode(prompt_directives.say)
        self._seed = crc32(repr(sequence.prompt).encode())
        self._end = (
            len(self._text_tokens) + 1
            if self._text_tokens is not None
            else max(1, prompt_directives.tokens or default_tokens)
        )
        # As in the real engine, a resumed sequence does not draw the same random numbers again.
        dice = random.Random((sequence.sampling.seed or 0) + self._resumed_at)  # noqa: S311
        self._dice = dice if sequence.sampling.temperature and sequence.sampling.top_p != 0 else None
        self._digest = _digest(sequence.generated)
        limit = room if sequence.sampling.max_tokens is None else min(room, sequence.sampling.max_tokens)
        limits = LengthChecker(sequence.length_limits) if sequence.length_limits else None
        self._generation = Generation(sequence, words, end_tokens=(END,), limit=limit, limits=limits)

    @property
    def length(self) -> int:
        """Tokens of prompt and output."""
        return self._prompt_length + len(self._generation.tokens)

    def trigger_fault(self) -> None:
        """Crash or hang if a directive is due."""
        position = len(self._generation.tokens)
        if self._directives.crash or self._due(self._directives.crash_at, position):
            _crash()
        if self._due(self._directives.hang_at, position):
            _hang()

    def _due(self, at: int | None, position: int) -> bool:
        # A sequence resumed at this position has already triggered the fault.
        return position == at and position > self._resumed_at

    def advance(self) -> StepOutput:
        """Return the output with the next token, or with the reason why there is none."""
        generation = self._generation
        if generation.stop_reason is not None:
            return generation.append((), (), generation.stop_reason)
        position = len(generation.tokens)
        if self._directives.exhaust_at is not None and position >= self._directives.exhaust_at:
            return generation.append((), (), "exhausted")
        return generation.append((self._token(position),), (0.0,))

    def _token(self, position: int) -> int:
        if position >= self._end - 1:
            return END
        if self._text_tokens is not None:
            return self._text_tokens[position]
        if self._dice is None:
            return FIRST_WORD + crc32(position.to_bytes(4), self._seed) % len(WORDS)
        token = self._dice.choice(_candidates(self._digest))
        self._digest = _digest((token,), self._digest)
        return token


def is_one_sample(tokens: Iterable[int]) -> bool:
    """Return whether one sampled sequence can have generated ``tokens``: each depends on all before it."""
    digest = 0
    for token in tokens:
        if token not in _candidates(digest):
            return False
        digest = _digest((token,), digest)
    return True


def _candidates(digest: int) -> tuple[int, int]:
    """Return the two tokens that can be sampled after the tokens with this digest."""
    first = FIRST_WORD + digest % (len(WORDS) - 1)
    return first, first + 1


def _digest(tokens: Iterable[int], digest: int = 0) -> int:
    """Return the digest of ``tokens`` after those with the given digest."""
    for token in tokens:
        digest = crc32(token.to_bytes(4), digest)
    return digest


def _crash() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    _hang()


def _hang() -> NoReturn:
    while True:
        time.sleep(3600)
