"""Fields of requests that become :class:`shared.protocol.request.Sampling`, each with its bounds and its place there.

The schemas of all dialects use these types, so a parameter is described once. :func:`sampling` reads the annotations.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, get_args

from pydantic import BaseModel, Field

from api.dialects.base.fields import ByType, Items, NonEmptyText, Strict
from shared.protocol.request import PromptScoring, Sampling, ThinkingBudget

MAX_COUNT = 2**31 - 1
"""Maximum number of tokens in a request: larger than any context, and within every integer type."""
MAX_STOP_LENGTH = 1024
"""Maximum length of a stop string in characters. Neither OpenAI nor vLLM states one, but each costs time per token."""


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Into:
    """Annotates a request's field with the field of ``Sampling`` that it sets: by default that of the same name.

    ``convert`` returns the value there. A field may set several. A flag that several fields set is on if one of them
    sets it.
    """

    field: str = ""
    convert: Callable[[Any], Any] = _same


def sampling(body: BaseModel) -> Sampling:
    """Return the sampling parameters in a validated request. Those that it omits keep their defaults."""
    found: dict[str, Any] = {}
    for name, into in _targets(type(body)):
        given = getattr(body, name)
        if given is not None:
            value = into.convert(given)
            if value or into.field not in found:
                found[into.field] = value
    if found.get("top_p") == 0:
        # The engine requires top_p > 0. With 0, only the most likely token remains, as with a temperature of 0.
        found |= {"temperature": 0.0, "top_p": None}
    return Sampling(**found)


@cache
def _targets(model: type[BaseModel]) -> tuple[tuple[str, Into], ...]:
    return tuple(
        (name, Into(into.field or name, into.convert))
        for name, field in model.model_fields.items()
        for into in (*_annotations(field.annotation), *(part for part in field.metadata if isinstance(part, Into)))
    )


def _annotations(kind: Any) -> Iterator[Into]:
    """Yield the annotations inside ``X | None``."""
    for part in get_args(kind):
        yield from (inner for inner in getattr(part, "__metadata__", ()) if isinstance(inner, Into))


def _texts(stop: str | list[str]) -> tuple[str, ...]:
    return (stop,) if isinstance(stop, str) else tuple(stop)


def _biases(bias: Mapping[str, int]) -> tuple[tuple[int, float], ...]:
    return tuple((int(token), float(value)) for token, value in bias.items())


def _scoring(top: int) -> PromptScoring:
    return PromptScoring(top=top)


def _thinking(tokens: int) -> ThinkingBudget:
    return ThinkingBudget(tokens=tokens) if tokens >= 0 else ThinkingBudget(tokens=MAX_COUNT, strict=False)


def _disabled_if_negative(count: int) -> int:
    return max(count, 0)


Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
TokenId = Annotated[int, Field(ge=0, le=MAX_COUNT)]
StopText = Annotated[str, Field(min_length=1, max_length=MAX_STOP_LENGTH)]

Beams = Annotated[int, Field(ge=1, le=128), Into("beams")]
"""The width of a beam search; its maximum is OpenAI's for the number of choices."""
Flag = Annotated[bool, Into()]
LengthPenalty = Annotated[float, Into()]
LogitBias = Annotated[dict[str, int], Field(max_length=1024), Into(convert=_biases)]
"""The OpenAI service checks the ids and biases last, after the rules across fields."""
MinP = Annotated[float, Field(ge=0.0, lt=1.0), Into()]
Penalty = Annotated[float, Field(ge=-2.0, le=2.0), Into()]
RepetitionPenalty = Annotated[float, Field(gt=0.0, le=100.0), Into()]
Seed = Annotated[int, Field(ge=-(2**63), le=2**63 - 1), Into()]
Stop = Annotated[
    StopText | Annotated[Items[StopText], Field(max_length=4)],
    ByType("one of a string or array of strings"),
    Into(convert=_texts),
]
"""An empty array means no stop strings. An empty stop string is refused, because it would end every choice at once."""
StopFlag = Annotated[bool, Into("include_stop")]
Temperature = Annotated[float, Field(ge=0.0, le=2.0), Into()]
ThinkingTokens = Annotated[int, Field(ge=-1, le=MAX_COUNT), Into("thinking_budget", _thinking)]
"""-1 is no limit."""
TokenLimit = Annotated[int, Field(ge=1, le=MAX_COUNT), Into("max_tokens")]
TopK = Annotated[int, Field(ge=-1, le=MAX_COUNT), Into(convert=_disabled_if_negative)]
TopLogprobs = Annotated[int, Field(ge=0, le=20), Into()]
TopP = Annotated[float, Field(ge=0.0, le=1.0), Into()]


class VllmSampling(Strict):
    """Sampling parameters and stop conditions of vLLM that OpenAI lacks."""

    allowed_token_ids: Annotated[Items[TokenId], Field(min_length=1), Into(convert=tuple)] | None = None
    bad_words: Annotated[Items[NonEmptyText], Field(max_length=64), Into(convert=tuple)] | None = None
    ignore_eos: Flag | None = None
    include_stop_str_in_output: StopFlag | None = None
    min_p: MinP | None = None
    min_tokens: Annotated[int, Field(ge=0, le=MAX_COUNT), Into()] | None = None
    prompt_logprobs: Annotated[int, Field(ge=0, le=20), Into("prompt_scoring", _scoring)] | None = None
    return_token_ids: bool | None = None
    repeat_penalty: Annotated[float, Field(gt=0.0, le=100.0), Into("repetition_penalty")] | None = None
    repetition_penalty: RepetitionPenalty | None = None
    skip_special_tokens: Flag | None = None
    stop_token_ids: Annotated[Items[TokenId], Field(max_length=64), Into(convert=tuple)] | None = None
    top_k: TopK | None = None


class EngineSampling(Strict):
    """Parameters of beam search and speculative decoding, with OpenVINO Model Server's names."""

    assistant_confidence_threshold: Annotated[float, Field(ge=0.0, le=1.0), Into()] | None = None
    length_penalty: LengthPenalty | None = None
    max_ngram_size: Annotated[int, Field(ge=1, le=MAX_COUNT), Into()] | None = None
    num_assistant_tokens: Annotated[int, Field(ge=1, le=MAX_COUNT), Into()] | None = None
