"""The first request of a loaded pipeline: measures its KV cache, and tests its logits tap."""

import numpy
import openvino
import openvino_genai

from shared.protocol.request import Sampling
from worker.engine.interface import EngineLoadError
from worker.engine.logits.operation import LogitsTap
from worker.engine.logits.rows import RowAssigner, RowReader
from worker.engine.recovery import last_line
from worker.engine.speculation import Speculation
from worker.engine.speculation import apply as apply_speculation

_TOKENS = 256
"""A whole number of KV blocks for every block size in use (16, 32, 64, 128, 256)."""


class _FirstSequence:
    """The sequence of the warm-up, as the row assigner sees it."""

    def __init__(self, prompt: list[int]) -> None:
        self.tokens = prompt
        self.reader = RowReader(Sampling(top_logprobs=1))

    def last(self) -> tuple[int, int]:
        return self.tokens[-1], len(self.tokens) - 1


def warm_up(
    pipeline: openvino_genai.ContinuousBatchingPipeline,
    request_id: int,
    vocabulary_size: int,
    speculation: Speculation,
    *,
    tapped: bool,
) -> tuple[int, int]:
    """Run one request; return the capacity of the KV cache in tokens at its current size, and the number of logits per
    token (0 without a tap).

    It generates two tokens, because prefill and decode use different kernels and weight layouts. Raises
    :class:`EngineLoadError` when the cache is too small, or the model's logits are not finite, and
    :class:`~worker.engine.logits.rows.RowLost` when ``tapped`` is set and the tap does not see the rows of both tokens.
    """
    config = pipeline.get_config()
    config.do_sample = False
    config.max_new_tokens = 2
    config.logprobs = 1
    config.ignore_eos = True
    apply_speculation(config, Sampling(), speculation)
    # The last generated token is never cached; the prompt and the first one fill whole blocks.
    prompt = [index % vocabulary_size for index in range(_TOKENS - 1)]
    sequence = _FirstSequence(prompt)
    assigner = RowAssigner({request_id: sequence})
    LogitsTap.listener = assigner.on_logits
    handle = pipeline.add_request(request_id, openvino.Tensor(numpy.array([prompt], numpy.int64)), config)
    try:
        while pipeline.has_non_finished_requests():
            pipeline.step()
            while tapped and handle.can_read():
                for chunk in handle.read().values():
                    for token, logprob in zip(chunk.generated_ids, chunk.generated_log_probs, strict=True):
                        sequence.reader.take(token, logprob)
                        sequence.tokens.append(token)
    except RuntimeError as error:
        # With log probabilities enabled, the sampler throws on NaN logits.
        raise EngineLoadError(
            f"the model can't generate a token. Its file may be damaged: download it again. {last_line(error)}"
        ) from error
    finally:
        LogitsTap.listener = None
    share: float = pipeline.get_metrics().max_cache_usage / 100
    if handle.get_status() != openvino_genai.GenerationStatus.FINISHED or not share:
        raise EngineLoadError(f"the KV cache can't hold {_TOKENS} tokens: give the worker a larger --cache-size")
    return round(_TOKENS / share), assigner.width
