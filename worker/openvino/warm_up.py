"""Warm-up request of a loaded pipeline: measures the KV cache, and tests the logits hook."""

import numpy
import openvino_genai

from shared.protocol.request import Sampling
from worker.engine.protocol import EngineLoadError, PlacedImage
from worker.engine.text import Vocabulary
from worker.model.devices import device_kind
from worker.openvino.logits.operation import HookFailed, Logits, LogitsHook, StepInput
from worker.openvino.logits.readers import RowLost, RowReader, read_rows
from worker.openvino.logits.rows import FollowedSequence, RowAssigner
from worker.openvino.options import OpenVINOOptions
from worker.openvino.prompts import add_prompt
from worker.openvino.recovery import native_message
from worker.openvino.sampling import apply_speculation
from worker.openvino.stateful import Pipeline, StatefulPipeline, paced

_SIDE = 224
_IMAGE = PlacedImage(0, _SIDE, _SIDE, bytes(3 * _SIDE * _SIDE))

_TOKENS = {"CPU": 32}
"""By kind of device, a whole number of the KV blocks in use there: 16 to 256 tokens for others than CPUs."""

_BIAS = 5.0
"""Bias of one token, so that the pipeline's log probabilities show whether biases arrive."""


class _WarmUpSequence(FollowedSequence):
    """The sequence of the warm-up, as the row assigner sees it."""

    def __init__(self, prompt: list[int], bias: float) -> None:
        self.tokens = prompt
        self.rows = RowReader(Sampling(top_logprobs=1, logit_bias=((prompt[0], bias),)))
        super().__init__(self.rows, None, searching=False, has_images=False)

    @property
    def known(self) -> int:
        return len(self.tokens)

    def count_cached(self, past: int, images: int) -> None:
        pass

    def generated(self, most: int) -> list[int]:
        return []


class _WarmUpRows:
    """Passes the rows of the warm-up to its sequence, and records whether all logits are finite."""

    def __init__(self, assigner: RowAssigner) -> None:
        self._assigner = assigner
        self.finite = True

    def wants_rows(self) -> bool:
        return True

    def on_logits(self, logits: Logits, step: StepInput) -> None:
        self.finite = self.finite and bool(numpy.isfinite(logits).all())
        self._assigner.on_logits(logits, step)


def warm_up(
    pipeline: Pipeline,
    request_id: int,
    vocabulary: Vocabulary,
    options: OpenVINOOptions,
    *,
    hooked: bool,
    images: bool,
) -> tuple[int, int]:
    """Run one request; return the capacity of the KV cache in tokens at its current size, and the number of logits per
    token (0 without a hook).

    It generates two tokens, because prefill and decode use different kernels and weight layouts, and encodes an image
    if it reads ``images``. Raises :class:`EngineLoadError` when the cache is too small, or the model's logits are
    not finite. With ``hooked``, raises :class:`~worker.openvino.logits.operation.HookFailed` when the hook does not see
    the rows of both tokens, when its biases do not reach the pipeline, or when a step fails although the logits are
    finite.
    """
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens = 2
    config.logprobs = 1
    config.ignore_eos = True
    apply_speculation(config, Sampling(), options.speculation)
    # The last generated token is never cached; the prompt and the first one fill whole blocks.
    size = _TOKENS.get(device_kind(options.device), 256)
    ordinary = [token for token in range(len(vocabulary)) if token not in vocabulary.special]
    prompt = [ordinary[index % len(ordinary)] for index in range(size - 1)]
    batched = not isinstance(pipeline, StatefulPipeline)
    # The stateful pipeline reports no log probabilities. There, the bias determines the tokens.
    sequence = _WarmUpSequence(prompt, _BIAS if batched else 1e4)
    assigner = RowAssigner({request_id: sequence})
    rows = _WarmUpRows(assigner)
    LogitsHook.listener = paced(pipeline, rows)
    handle = add_prompt(pipeline, request_id, prompt, config, spelled=images)
    try:
        while pipeline.has_non_finished_requests():
            pipeline.step()
            while hooked and handle.can_read():
                for chunk in handle.read().values():
                    reported = chunk.generated_log_probs if batched else None
                    read_rows(sequence.rows, chunk.generated_ids, reported, vocabulary.piece)
                    sequence.tokens += chunk.generated_ids
    except RowLost as error:
        raise HookFailed(str(error)) from error
    except RuntimeError as error:
        # With log probabilities enabled, the sampler throws on NaN logits.
        if hooked and rows.finite:
            raise HookFailed(native_message(error)) from error
        raise EngineLoadError(
            f"the model can't generate a token. Its file may be damaged: download it again. {native_message(error)}"
        ) from error
    finally:
        LogitsHook.listener = None
    if hooked and not batched and sequence.tokens[size - 1 :] != [prompt[0]] * 2:
        raise HookFailed("the bias of a token does not reach the pipeline")
    share: float = pipeline.get_metrics().max_cache_usage / 100
    if handle.get_status() != openvino_genai.GenerationStatus.FINISHED or not share:
        raise EngineLoadError(f"the KV cache can't hold {size} tokens: give the worker a larger --cache-size")
    if images:
        _run_image(pipeline, request_id, prompt[:1])
    return round(size / share), assigner.width


def _run_image(pipeline: Pipeline, request_id: int, prompt: list[int]) -> None:
    """Run a request with an image. Raises :class:`EngineLoadError` when the model can't encode it."""
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens = 1
    try:
        add_prompt(pipeline, request_id, prompt, config, [_IMAGE], spelled=True)
        while pipeline.has_non_finished_requests():
            pipeline.step()
    except RuntimeError as error:
        raise EngineLoadError(f"the model can't encode an image: {native_message(error)}") from error
