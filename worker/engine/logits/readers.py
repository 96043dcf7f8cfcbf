"""Readers for the rows of logits of a new sequence, and the salt in its prompt by which they are found."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import openvino_genai

from shared.protocol.request import PromptScoring, Sampling
from worker.engine.generation_config import score_prompt
from worker.engine.interface import Sequence
from worker.engine.logits.prompt import PromptReader
from worker.engine.logits.rows import RowReader, needs_rows

_MAX_ID = 2**31
"""Salted token ids are below this."""


class Readers(NamedTuple):
    """The ``input_tokens`` of a sequence for the pipeline, perhaps salted, and the readers of its rows.

    With a reader of the ``prompt``, the pipeline repeats the prompt before the first new token. ``usable`` is False if
    the new tokens can't be used, because they are sampled without a penalty.
    """

    input_tokens: tuple[int, ...]
    reader: RowReader | None = None
    prompt: PromptReader | None = None
    usable: bool = True


def readers_of(
    sequence: Sequence,
    scoring: PromptScoring | None,
    input_tokens: tuple[int, ...],
    config: openvino_genai.GenerationConfig,
    *,
    number: int,
    width: int,
) -> Readers:
    """Return the readers of a sequence with the request id ``number``; change its ``config`` if its prompt is scored.

    A row has ``width`` logits; 0 if they can't be read.
    """
    sampling = sequence.sampling
    if scoring is not None:
        prompt = PromptReader(input_tokens, scoring.top)
        salted = with_salt(input_tokens, number, width, sampling, scored=True)
        return Readers(salted, RowReader(sampling, sequence.bad_word_tokens), prompt, usable=score_prompt(config))
    if width and needs_rows(sampling):
        return Readers(with_salt(input_tokens, number, width, sampling), RowReader(sampling, sequence.bad_word_tokens))
    return Readers(input_tokens)


def new_request_id(ids: Iterator[int], used: Iterable[int], width: int) -> int:
    """Return the next of ``ids`` whose salt differs from those of the request ids in ``used``."""
    if not width:
        return next(ids)
    used_salts = {number % salts(width) for number in used}
    return next(number for number in ids if number % salts(width) not in used_salts)


def salts(width: int) -> int:
    """Return the number of different salts for token ids. A row has ``width`` logits."""
    return _MAX_ID // width - 1


def with_salt(
    tokens: tuple[int, ...], number: int, width: int, sampling: Sampling, *, scored: bool = False
) -> tuple[int, ...]:
    """Return ``tokens`` with the last one salted, or the first one if the prompt is ``scored``.

    The salt depends on ``number`` and replaces an earlier one; a row has ``width`` logits.
    With a repetition penalty, the last one can't be salted: the pipeline looks up the logits of all prompt tokens.
    """
    salt = (1 + number % salts(width)) * width
    if scored:
        return (tokens[0] % width + salt, *tokens[1:])
    if sampling.repetition_penalty not in (None, 1.0):
        return tokens
    return (*tokens[:-1], tokens[-1] % width + salt)
