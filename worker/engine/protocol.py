"""The :class:`Engine` protocol, and the messages between the supervisor and the engine process.

The engine process steps; the supervisor claims and publishes. The supervisor sends commands, the engine process sends
reports, both as MessagePack over a socket pair. Sequences are identified by numbers. The supervisor maps them to jobs
and never reuses one.
"""

from collections.abc import Collection, Iterator
from typing import Generic, Literal, Protocol, TypeVar

import msgspec

from shared.parsers import Markup
from shared.protocol.errors import Problem
from shared.protocol.events import Alternative, Delta, PromptLogprobs
from shared.protocol.request import Sampling
from worker.processes.messages import LoadFailed

StopReason = Literal["stop", "length", "exhausted"]
"""``exhausted``: the KV cache was too small for the sequence."""


EngineKind = Literal["batched", "stateful"]
"""``batched``: a paged KV cache, many sequences in a step. ``stateful``: one sequence at a time."""


class PlacedImage(msgspec.Struct, frozen=True, array_like=True):
    """A decoded image in a prompt: ``at`` is the number of tokens before it, ``pixels`` are rows of RGB bytes."""

    at: int
    width: int
    height: int
    pixels: bytes


class ReasoningLimit(msgspec.Struct, frozen=True, kw_only=True):
    """Where reasoning is cut: after ``tokens`` tokens, ``end_tokens`` are forced.

    It is from ``begin`` to the first of ``ends``, at the start of the output, and if ``again`` also later. ``opened``:
    the prompt contains its beginning.
    """

    tokens: int
    begin: str
    ends: tuple[str, ...]
    end_tokens: tuple[int, ...]
    opened: bool = False
    again: bool = False


class LengthLimits(msgspec.Struct, frozen=True, array_like=True):
    """Length limits of a JSON value (``maxLength`` in its ``schema``), or of the text until the end (``max_length``).

    ``begin`` is the text directly before the value; if empty, the output starts with it. ``schema`` is JSON text. With
    ``{}``, that of JSON mode, objects end after a name that has occurred before, and everything ends in a loop.
    ``minimums``: a ``minLength`` that the grammar leaves out, because it is long, counts too.
    """

    begin: str
    schema: str = ""
    max_length: int | None = None
    minimums: bool = False


class OutputGrammar(msgspec.Struct, frozen=True, array_like=True):
    """What a text must match. An engine renders it for its own compiler.

    ``text`` is EBNF with the rule ``root``, as XGrammar and llama.cpp read it; if ``tagged``, a structural tag as JSON
    (:mod:`worker.grammar.tags`).

    >>> OutputGrammar('root ::= "yes" | "no"')
    OutputGrammar(text='root ::= "yes" | "no"', tagged=False)
    """

    text: str
    tagged: bool = False


class EngineSequence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A sequence to generate.

    - ``prompt``: token ids.
    - ``images``: the images in the prompt, in the order of their places.
    - ``generated``: token ids that an earlier attempt published. Generation continues after them, and positions
      include them.
    - ``sampling``: complete, with the model's defaults; the seed is always set. A beam search (``beams`` above 1)
      returns its best ``alternatives`` texts and is never resumed.
    - ``shown_tokens``: special tokens that stay in the text when special tokens are skipped.
    - ``triggers``: the grammar applies from the first of these texts on; without any, from the start.
    - ``bad_word_tokens``: sequences of tokens that must not be generated.
    - ``markup``: the parts of the text in which stop strings do not match; ``None`` without any.
    - ``length_limits``: length limits of strings in the output. With access to logits, a string is closed at its
      limit, and not before its ``minLength``; a longer or shorter string ends the sequence.
    - ``reasoning_limit``: enforced with access to logits.
    - ``lengths``: the numbers of tokens of the texts in a prompt to embed, in vectors of ``dimensions`` (0: all).
    - ``firsts``, ``items``: of each text that is a pair, the number of tokens of the first type, and the number of its
      document. Of a document in several parts, the best score is its own.
    """

    number: int
    prompt: tuple[int, ...]
    images: tuple[PlacedImage, ...] = ()
    sampling: Sampling
    generated: tuple[int, ...] = ()
    grammar: OutputGrammar | None = None
    shown_tokens: tuple[int, ...] = ()
    triggers: tuple[str, ...] = ()
    bad_word_tokens: tuple[tuple[int, ...], ...] = ()
    markup: Markup | None = None
    length_limits: tuple[LengthLimits, ...] = ()
    reasoning_limit: ReasoningLimit | None = None
    alternatives: int = 1
    lengths: tuple[int, ...] = ()
    firsts: tuple[int, ...] = ()
    items: tuple[int, ...] = ()
    dimensions: int = 0


DeltaT = TypeVar("DeltaT", covariant=True)
"""A sequence's new output. In the engine process: a :class:`~shared.protocol.events.Delta`, ``None``, or the log
probabilities of its prompt. In the supervisor: its encoding, which is forwarded without decoding it."""


class Ending(msgspec.Struct, frozen=True, array_like=True):
    """The part of an output that only the last one of a sequence can have."""

    alternatives: tuple[Alternative, ...] = ()
    """The texts of a beam search, best first. A beam search has a single output, at its end, with no delta."""
    prompt_tokens: int = 0
    """For a prompt with images: the number of its tokens, images included. 0: those of the text."""
    stop: str = ""
    """The stop string that has ended the sequence, if one has."""


class Output(msgspec.Struct, Generic[DeltaT], frozen=True, array_like=True):
    """The output of one step for one sequence.

    ``end`` is the number of tokens generated so far. The text in ``delta`` is final: complete characters, and no
    prefix of a possible stop string. ``reason`` is set in the last output, and ``ending`` if there is more to it.
    ``cached`` is the number of prompt tokens from the prefix cache, 0 if it is not known.
    """

    number: int
    end: int
    delta: DeltaT
    reason: StopReason | None = None
    ending: Ending | None = None
    cached: int = 0


StepOutput = Output[Delta | None]
"""An output in the engine process."""

PromptOutput = Output[PromptLogprobs]
"""The log probabilities of a sequence's prompt, in the engine process. ``end`` is 0."""


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Properties of a loaded engine. ``context_length`` and ``cache_tokens`` are in tokens, ``slots`` in sequences.

    ``query_reserve`` is how many slots texts to index leave free for queries; 0 for an engine that generates.

    ``max_prompt`` is the maximum length of a prompt in tokens; 0 if only the context limits it.

    ``devices`` are all that OpenVINO finds. ``logits`` is whether the engine has access to the model's logits,
    ``adjusts_logits`` whether it masks tokens by ``length_limits``, and applies penalties itself.
    ``vocabulary`` is the digest of its vocabulary and chat template. ``engine`` is an :data:`EngineKind`,
    ``embedding``, ``reranker`` or ``simulated``, and ``reason`` says why it was chosen. ``prefix_caching`` is whether
    prompts reuse the KV cache of earlier ones.
    """

    context_length: int
    cache_tokens: int
    slots: int
    query_reserve: int = 0
    fingerprint: str
    device: str
    load_seconds: float
    devices: tuple[str, ...] = ()
    logits: bool = False
    adjusts_logits: bool = False
    vocabulary: str = ""
    engine: str = ""
    reason: str = ""
    prefix_caching: bool = True
    max_prompt: int = 0


class Gauges(msgspec.Struct, frozen=True, array_like=True):
    """The engine's metrics after a step. ``cache_usage`` is a share from 0 to 1.

    ``step_seconds`` is the total time inside the pipeline's steps, ``host_seconds`` the total time between consecutive
    steps while there was work: the host overhead. ``lost_rows`` counts sequences that ended because
    their logits could not be matched to them, ``preemptions`` how often one was preempted. ``drafted`` counts the
    draft tokens that the model has verified, ``accepted`` those of them that it has accepted.
    """

    requests: int
    scheduled: int
    cache_usage: float
    steps: int
    tokens: int
    step_seconds: float = 0.0
    host_seconds: float = 0.0
    lost_rows: int = 0
    preemptions: int = 0
    drafted: int = 0
    accepted: int = 0


class EngineBroken(Exception):
    """The engine can't run any sequence any more. Its process must be replaced."""


class EngineLoadError(Exception):
    """The model can't be loaded. The message is human-readable."""


class GrammarError(ValueError):
    """A grammar can't be compiled; the human-readable message gives the reason."""


class Engine(Protocol):
    """A loaded model. All methods are called from the thread that steps."""

    engine_info: EngineInfo

    def add(self, sequence: EngineSequence) -> None:
        """Add a sequence to the batch. Raises :class:`RequestRefused`, without affecting other sequences."""

    def cancel(self, number: int) -> None:
        """Remove a sequence. It is not part of the next step, after which its KV cache is free."""

    def preempt(self, numbers: Collection[int]) -> None:
        """Take these sequences out of the batch, and resume those preempted before that are not among them.

        A sequence that can't be resumed exactly stays in the batch.
        """

    def step(self) -> list[StepOutput]:
        """Advance every sequence; return at most one output per sequence. Cheap when idle.

        Raises :class:`EngineBroken` when no sequence can continue.
        """

    def prompts(self) -> list[PromptOutput]:
        """Return and clear the log probabilities of prompts that the last step has completed.

        They precede the outputs of that step.
        """

    def refused(self) -> list["SequenceRefused"]:
        """Return and clear the sequences that were removed because they made a step fail."""

    def busy(self) -> bool:
        """Whether a step has work: sequences are running, or ended ones have not been freed yet."""

    def gauges(self) -> Gauges:
        """Return the engine's metrics."""

    def finish_loading(self) -> Iterator[bool]:
        """Make, part by part, what requests can be served without. Yields False between two parts. Each is
        made when the engine is idle."""


# Commands, from the supervisor to the engine process.


class Add(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Start a sequence."""

    sequence: EngineSequence


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Drop a sequence."""

    number: int


class Preempt(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Preempt these sequences, and resume all others."""

    numbers: tuple[int, ...]


Command = Add | Cancel | Preempt

# Reports, from the engine process to the supervisor.


class Loading(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A stage of loading has begun. ``stage`` is human-readable."""

    stage: str


class Ready(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The model is loaded and warmed up."""

    engine_info: EngineInfo


class Stepped(msgspec.Struct, Generic[DeltaT], frozen=True, array_like=True, tag=3):
    """The outputs of a step. Without outputs (long prefills), sent every quarter of a second as a sign of life.

    Also sent once when the engine becomes idle, with the final gauges. Until then, gauges may be slightly outdated.
    """

    outputs: tuple[Output[DeltaT], ...]
    gauges: Gauges


class SequenceRefused(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """A sequence could not be added, or was removed because it made a later step fail, perhaps after outputs."""

    number: int
    problem: Problem


Report = Loading | Ready | LoadFailed | Stepped[DeltaT] | SequenceRefused

EngineReport = Report[Delta | PromptLogprobs | None]
"""A report in the engine process."""

RawEngineReport = Report[msgspec.Raw]
"""A report in the supervisor, with encoded deltas."""

RawStep = Stepped[msgspec.Raw]
"""A step report in the supervisor."""

EMPTY_DELTA_BYTES = len(msgspec.msgpack.encode(None))
"""Length of an encoded ``None`` in place of a delta. An encoded delta is longer."""
