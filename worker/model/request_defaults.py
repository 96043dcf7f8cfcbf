"""What a model's entry in a catalogue sets for requests that do not set it themselves."""

import os
from typing import Annotated, Any, Literal

import msgspec
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from shared.protocol.request import Sampling, ThinkingBudget
from worker.model.embedding import Pooling, TokenArrays, VectorSettings

VARIABLE = "_VINOQUEUE_REQUEST_DEFAULTS"
"""Environment variable with which a node passes them to the worker of a model, as JSON. It is no setting."""

_SET_BY_WORKERS = ("messages", "tools", "add_generation_prompt", "bos_token", "eos_token")
_MOST_VARIABLES = 8192
"""Maximum size in bytes of the variables as JSON. They are passed on a command line."""


def _variables(value: dict[str, Any]) -> dict[str, Any]:
    for name in _SET_BY_WORKERS:
        if name in value:
            raise ValueError(f"'{name}' is set by the service and can't be overridden")
    if len(msgspec.json.encode(value)) > _MOST_VARIABLES:
        raise ValueError(f"has more than {_MOST_VARIABLES} bytes")
    return value


_Prefix = Annotated[str, Field(max_length=16_384)]
_Penalty = Annotated[float, Field(ge=-2.0, le=2.0)]


class RequestDefaults(BaseModel):
    """The fields, with the bounds of those of requests. ``None``: the model's own default, or the API's."""

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)

    temperature: Annotated[float, Field(ge=0.0, le=2.0)] | None = None
    top_p: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    top_k: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    min_p: Annotated[float, Field(ge=0.0, lt=1.0)] | None = None
    frequency_penalty: _Penalty | None = None
    presence_penalty: _Penalty | None = None
    repetition_penalty: Annotated[float, Field(gt=0.0, le=100.0)] | None = None
    max_tokens: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    thinking_token_budget: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    chat_template_kwargs: Annotated[dict[str, Any], AfterValidator(_variables)] | None = None
    system: Annotated[str, Field(min_length=1, max_length=16_384)] | None = None
    pooling: Pooling | None = None
    normalize: bool | None = None
    query_prefix: _Prefix | None = None
    document_prefix: _Prefix | None = None
    token_arrays: TokenArrays | None = None
    truncate: bool | None = None
    idle: bool | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The fields that are set."""
        return self.model_dump(include=set(RequestDefaults.model_fields), exclude_none=True)

    @property
    def sampling(self) -> Sampling:
        given = {name: value for name, value in self.given.items() if name in Sampling.__struct_fields__}
        budget = self.thinking_token_budget
        return Sampling(
            **given, thinking_budget=None if budget is None else ThinkingBudget(tokens=budget, strict=False)
        )

    @property
    def of_vectors(self) -> dict[str, Any]:
        """The fields that are set, and that only a model that computes vectors or scores has."""
        names = {*VectorSettings.__struct_fields__} - {"max_tokens"}
        return {name: value for name, value in self.given.items() if name in names}

    @property
    def vectors(self) -> VectorSettings:
        return VectorSettings(**self.of_vectors, max_tokens=self.max_tokens or 0)

    @property
    def template_kwargs(self) -> dict[str, Any]:
        """The variables of the chat template, with those of ``reasoning_effort``."""
        effort: dict[str, Any] = {"reasoning_effort": self.reasoning_effort} if self.reasoning_effort else {}
        if self.reasoning_effort == "none":
            effort |= {"enable_thinking": False, "thinking": False}
        return effort | (self.chat_template_kwargs or {})


def given_defaults() -> RequestDefaults:
    """Return the defaults that a node has passed to this worker, if any."""
    return RequestDefaults.model_validate_json(os.environ.get(VARIABLE, "{}"))
