"""OpenVINO GenAI's stateful pipeline, which computes one request at a time, with the methods of its batched one.

``generate()`` of ``LLMPipeline`` and ``VLMPipeline`` returns at the end of a request, so it runs in a thread of its own
and streams its tokens to the thread that steps. It starts to compute the next token before it streams one. Therefore a
cancelled request ends one token later, and the logits of a token may be ready before the token before it was read.
"""

import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy
import openvino
import openvino_genai
from openvino_genai.py_openvino_genai import GenerationHandle, PerfMetrics

from shared.runtime.plugin_config import PluginValue
from worker.engine.watchdog import PIXELS_PER_SECOND, PREFILL_RATE
from worker.openvino.logits.operation import Listener, Logits, StepInput

_RUNNING = openvino_genai.GenerationStatus.RUNNING
_FINISHED = openvino_genai.GenerationStatus.FINISHED
_NO_REASON = openvino_genai.GenerationFinishReason.NONE

_STEP = 0.25
"""Seconds after which a step without a token returns, so that commands are read during a long prefill."""


class Chunk(NamedTuple):
    """New output. ``finish_reason`` is set when the request has ended. The pipeline reports no log probabilities."""

    generated_ids: list[int]
    finish_reason: openvino_genai.GenerationFinishReason
    generated_log_probs: tuple[float, ...] = ()
    score: float = 0.0


class StatefulMetrics(NamedTuple):
    """The pipeline's metrics. Cache usage is in percent of the context."""

    requests: int
    scheduled_requests: int
    cache_usage: float
    max_cache_usage: float


class StatefulHandle(openvino_genai.StreamerBase):  # type: ignore[misc]
    """One request, and the streamer that the pipeline gives its tokens to."""

    def __init__(self, generate: Callable[..., Any], prompt_tokens: int, pixels: int = 0) -> None:
        """``generate`` runs the request with a ``streamer``. ``prompt_tokens`` are those of its text, ``pixels`` those
        of its images."""
        super().__init__()
        self._generate = generate
        self.prompt_tokens = prompt_tokens
        self._prefill = prompt_tokens / PREFILL_RATE + pixels / PIXELS_PER_SECOND
        self.started = 0.0
        """When it started (``time.monotonic``)."""
        self.cancelled = self.ended = False
        self.error: Exception | None = None
        self.read_tokens = 0
        """Number of tokens that were read."""
        self.changed = threading.Condition()
        """Notified about all of the above, and about new output."""
        self._unread: list[int] = []
        self._reason = _NO_REASON
        self._metrics: PerfMetrics | None = None

    @property
    def tokens(self) -> int:
        """Number of tokens of prompt and output."""
        return self.prompt_tokens + self.read_tokens + len(self._unread)

    def write(self, token: int | list[int]) -> openvino_genai.StreamingStatus:
        """Store new tokens; called by the pipeline. Never raises: the pipeline would fail for ever."""
        with self.changed:
            self._unread += [token] if isinstance(token, int) else token
            self.changed.notify_all()
        return openvino_genai.StreamingStatus.CANCEL if self.cancelled else openvino_genai.StreamingStatus.RUNNING

    def end(self) -> None:
        """Called by the pipeline after the last token. :meth:`generate` returns when it can take the next request."""

    def generate(self) -> None:
        """Run the request to its end."""
        reason, error = _NO_REASON, None
        try:
            results = self._generate(streamer=self)
            reason, self._metrics = results.finish_reasons[0], results.perf_metrics
        except Exception as failure:
            error = failure
        with self.changed:
            self._reason, self.error, self.ended = reason, error, True
            self.changed.notify_all()

    def can_read(self) -> bool:
        """Return whether there is output, or a reason for the end, that was not read."""
        return bool(self._unread) or self._reason != _NO_REASON

    def read(self) -> dict[int, Chunk]:
        """Return and clear the new output."""
        with self.changed:
            chunk = Chunk(self._unread, self._reason)
            self._unread, self._reason = [], _NO_REASON
            self.read_tokens += len(chunk.generated_ids)
        return {0: chunk}

    def get_status(self) -> openvino_genai.GenerationStatus:
        """Return whether the request has ended. One that has failed has not: its step raises the error."""
        return _FINISHED if self.ended and self.error is None else _RUNNING

    def cancel(self) -> None:
        """End the request. The pipeline is free when it has computed the current token."""
        with self.changed:
            self.cancelled = True
            self.changed.notify_all()

    def get_perf_metrics(self) -> PerfMetrics:
        """Return the pipeline's metrics. Raises :class:`RuntimeError` for a request that has not ended."""
        if self._metrics is None:
            raise RuntimeError("the request has not ended")
        return self._metrics

    def advance(self) -> None:
        """Wait for new output, the end, or :data:`_STEP` seconds of a prefill. A cancelled request is waited for."""
        prefilled_by = self.started + self._prefill
        with self.changed:
            while self.cancelled or not self.can_read():
                timely = time.monotonic() < prefilled_by
                if self.ended or (not self.changed.wait(_STEP if timely else None) and timely):
                    return


def load_vision(
    path: Path, tokenizer: openvino_genai.Tokenizer, device: str, properties: Mapping[str, PluginValue]
) -> tuple[openvino_genai.VLMPipeline, object]:
    """Load the vision-language model in the IR folder ``path``. Raises :class:`RuntimeError` when OpenVINO fails.

    Returns the pipeline, and the weights, which it reads and does not keep alive. It takes another tokenizer than the
    folder's only together with all models' files.
    """
    models, kept = {}, []
    for file in path.glob("openvino_*_model.xml"):
        weights = file.with_suffix(".bin")
        # Private, because OpenVINO wants to be able to write; the pages are those of the file.
        data = numpy.memmap(weights, numpy.uint8, "c") if weights.stat().st_size else numpy.empty(0, numpy.uint8)
        name = file.stem.removeprefix("openvino_").removesuffix("_model")
        models[name] = file.read_text(encoding="utf-8"), openvino.Tensor(data, shared_memory=True)
        kept.append(data)
    return openvino_genai.VLMPipeline(models, tokenizer, str(path), device, **properties), kept


class StatefulPipeline:
    """A pipeline with one request at a time; others wait in their order."""

    def __init__(
        self,
        pipeline: openvino_genai.LLMPipeline | openvino_genai.VLMPipeline,
        context_length: int,
        weights: object = None,
    ) -> None:
        """``context_length`` is the maximum number of tokens of prompt and output. ``weights`` live as long."""
        self._pipeline = pipeline
        self._weights = weights
        self._context_length = context_length
        self._waiting: deque[StatefulHandle] = deque()
        self._current: StatefulHandle | None = None
        self._most_tokens = 0
        self._step = self._logits = 0

    def get_tokenizer(self) -> openvino_genai.Tokenizer:
        """Return the model's tokenizer."""
        return self._pipeline.get_tokenizer()

    def get_config(self) -> openvino_genai.GenerationConfig:
        """Return a copy of the model's generation config."""
        return self._pipeline.get_generation_config()

    def add_request(self, request_id: int, *request: Any) -> StatefulHandle:
        """Queue a request: a prompt of token ids, or a text and its images; and a generation config.

        Raises :class:`RuntimeError` for a config that is not valid.
        """
        prompt, *images, config = request
        config.validate()
        if images:
            generate = partial(self._generate_with_images, prompt, images=images[0], generation_config=config)
            pixels = sum(int(image.shape[1]) * int(image.shape[2]) for image in images[0])
            handle = StatefulHandle(generate, len(prompt), pixels)
        else:
            handle = StatefulHandle(partial(self._pipeline.generate, prompt, config), int(prompt.shape[1]))
        self._waiting.append(handle)
        return handle

    def _generate_with_images(self, text: str, **arguments: Any) -> Any:
        try:
            return self._pipeline.generate(text, **arguments)
        except RuntimeError:
            # What a request leaves that fails, such as one that is too long, would make all others fail.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                self._pipeline.finish_chat()
            raise

    def step(self) -> None:
        """Advance the current request by a token, if it has not computed more already, or start the next one.

        Raises the error of a request that has failed. A step may end without a token.
        """
        if self._current is None:
            self._start_next()
        if (handle := self._current) is None:
            return
        with handle.changed:
            self._step = handle.read_tokens
            handle.changed.notify_all()
        handle.advance()
        self._most_tokens = max(self._most_tokens, handle.tokens)
        if handle.ended:
            self._current = None
            if handle.error is not None and not handle.cancelled:
                raise handle.error

    def _start_next(self) -> None:
        while self._waiting and self._current is None:
            handle = self._waiting.popleft()
            if not handle.cancelled:
                handle.started = time.monotonic()
                self._step = self._logits = 0
                self._current = handle  # its logits may be ready before start() returns
                threading.Thread(target=handle.generate, name="generate", daemon=True).start()

    def has_non_finished_requests(self) -> bool:
        """Return whether a request is running or waits."""
        return self._current is not None or any(not handle.cancelled for handle in self._waiting)

    def get_metrics(self) -> StatefulMetrics:
        """Return the number of requests, and the use of the context."""
        current = self._current
        scheduled = int(current is not None)
        percent = 100 / self._context_length
        usage = current.tokens * percent if current is not None else 0.0
        return StatefulMetrics(scheduled + len(self._waiting), scheduled, usage, self._most_tokens * percent)

    def await_step(self) -> bool:
        """Called with the logits of each token: wait until the tokens before it were read, and the next step began.

        Returns False for logits that nobody reads, because their request was cancelled.
        """
        handle, position = self._current, self._logits
        self._logits += 1
        if handle is None:
            return False
        with handle.changed:
            handle.changed.wait_for(lambda: self._step >= position or handle.cancelled)
            return not handle.cancelled


class _PacedListener:
    """See :func:`paced`."""

    def __init__(self, pipeline: StatefulPipeline, listener: Listener) -> None:
        self._pipeline = pipeline
        self._listener = listener

    def wants_rows(self) -> bool:
        """Wait for the step; return whether the listener wants its logits."""
        return self._pipeline.await_step() and self._listener.wants_rows()

    def on_logits(self, logits: Logits, step: StepInput) -> None:
        """Hand on the logits."""
        self._listener.on_logits(logits, step)


Pipeline: TypeAlias = openvino_genai.ContinuousBatchingPipeline | StatefulPipeline
Handle: TypeAlias = GenerationHandle | StatefulHandle


def paced(pipeline: Pipeline, listener: Listener) -> Listener:
    """Return a listener that hands logits to ``listener`` in the step of ``pipeline`` that their token belongs to."""
    return _PacedListener(pipeline, listener) if isinstance(pipeline, StatefulPipeline) else listener
