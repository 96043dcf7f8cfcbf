"""What several interfaces have in common: samples, and rows that each of them completes with its own words."""

from functools import partial
from typing import Any

from tests.compatibility.rows import Answer, Request

USER: dict[str, Any] = {"role": "user", "content": "Hello"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
SCHEMA = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
FUNCTION = {"name": "f", "description": "Does it.", "parameters": SCHEMA}
TOOL: dict[str, Any] = {"type": "function", "function": FUNCTION}
NAMED_TOOL = {"type": "function", "function": {"name": "f"}}
_SCHEMA_FORMAT = {
    "type": "json_schema",
    "json_schema": {"name": "s", "description": "It.", "schema": SCHEMA, "strict": True},
}

IMAGES = "By vision-language models: PNG, JPEG, WebP and still GIF in data URLs; `http(s)` with `--media-domains`."
MODEL = partial(Request, fields="model", how="A name that a worker serves, else 404.")
PENALTIES = partial(
    Request,
    fields="frequency_penalty presence_penalty",
    body={"frequency_penalty": 1, "presence_penalty": 1},
    how="Applied by the engine.",
)
SEED = partial(Request, fields="seed", body={"seed": 7})
STOP = partial(Request, fields="stop", body={"stop": ["a", "b"]})
MAX_TOKENS = partial(Request, fields="max_tokens", body={"max_tokens": 5})
MAX_COMPLETION_TOKENS = partial(Request, fields="max_completion_tokens", body={"max_completion_tokens": 5})
LOGPROBS = partial(
    Request, fields="logprobs", body={"logprobs": True}, how="Those of the sampled tokens. Also in streams."
)
LOGIT_BIAS = partial(
    Request,
    fields="logit_bias",
    body={"logit_bias": {"1": 1}},
    how="Added to the logits before penalties and temperature. Needs `--logits`.",
)
TOP_LOGPROBS_REQUEST = partial(
    Request,
    fields="top_logprobs",
    body={"logprobs": True, "top_logprobs": 3},
    how="Of the model's unmodified distribution. Needs `--logits`.",
)
ECHO = partial(
    Request,
    fields="echo",
    body={"echo": True},
)
STREAM = partial(
    Request,
    fields="stream stream_options stream_options.include_usage",
    body={"stream": True, "stream_options": {"include_usage": True}},
)
JSON_OBJECT = partial(
    Request,
    fields="response_format response_format.type",
    when="json_object",
    body={"response_format": {"type": "json_object"}},
    how="A grammar enforces an object, unless the length limit cuts it off.",
)
JSON_SCHEMA = partial(
    Request,
    fields="response_format response_format.type response_format.json_schema response_format.json_schema.name "
    "response_format.json_schema.description response_format.json_schema.schema response_format.json_schema.strict",
    when="json_schema",
    body={"response_format": _SCHEMA_FORMAT},
)
TOOL_CHOICE = partial(
    Request,
    fields="tool_choice",
    when="none, auto, required",
    body={"tools": [TOOL], "tool_choice": "required"},
    how="A grammar enforces `required`, for any model.",
)
TOOL_CHOICE_BY_NAME = partial(
    Request,
    fields="tool_choice tool_choice.type tool_choice.function tool_choice.function.name",
    when="function",
    body={"tools": [TOOL], "tool_choice": NAMED_TOOL},
    how="Enforced by a grammar, for any model.",
)
SPECULATION = partial(
    Request,
    fields="num_assistant_tokens max_ngram_size",
    body={"num_assistant_tokens": 5, "max_ngram_size": 3},
)
CONFIDENCE = partial(
    Request,
    fields="assistant_confidence_threshold",
    body={"assistant_confidence_threshold": 0.4},
)

TEXT = partial(
    Answer,
    fields="choices[].message choices[].message.role choices[].message.content choices[].delta "
    "choices[].delta.role choices[].delta.content",
    how="The text, whole or in pieces.",
)
REASONING = partial(
    Answer,
    fields="choices[].message.reasoning_content choices[].delta.reasoning_content",
    how="The text between the model's reasoning markers.",
)
TOOL_CALLS = partial(
    Answer,
    fields="choices[].message.tool_calls choices[].message.tool_calls[].id choices[].message.tool_calls[].type "
    "choices[].message.tool_calls[].function choices[].message.tool_calls[].function.name "
    "choices[].message.tool_calls[].function.arguments choices[].delta.tool_calls "
    "choices[].delta.tool_calls[].index choices[].delta.tool_calls[].id choices[].delta.tool_calls[].type "
    "choices[].delta.tool_calls[].function choices[].delta.tool_calls[].function.name "
    "choices[].delta.tool_calls[].function.arguments",
    how="Arguments are streamed as they are generated.",
)
REFUSAL = partial(Answer, fields="choices[].message.refusal choices[].delta.refusal choices[].logprobs.refusal")
TOKEN_LOGPROBS = partial(
    Answer,
    fields="choices[].logprobs choices[].logprobs.content choices[].logprobs.content[].token "
    "choices[].logprobs.content[].logprob choices[].logprobs.content[].bytes",
)
TOP_LOGPROBS = partial(
    Answer,
    fields="choices[].logprobs.content[].top_logprobs choices[].logprobs.content[].top_logprobs[].token "
    "choices[].logprobs.content[].top_logprobs[].logprob choices[].logprobs.content[].top_logprobs[].bytes",
    how="Before biases, grammars, penalties and temperature.",
)
PLAIN_LOGPROBS = partial(
    Answer,
    fields="choices[].logprobs choices[].logprobs.tokens choices[].logprobs.token_logprobs "
    "choices[].logprobs.text_offset",
    how="One for each token of the text.",
)
PLAIN_TOP_LOGPROBS = partial(
    Answer, fields="choices[].logprobs.top_logprobs", how="The most likely tokens and the sampled one."
)
PROMPT_LOGPROBS = partial(
    Answer,
    how="vLLM's: null for the first token, for each of the others `logprob`, `rank` and `decoded_token` by token id.",
)
TOKEN_IDS = partial(
    Answer,
    how="vLLM's, if the request has `return_token_ids`.",
)
USAGE = partial(Answer, fields="usage usage.prompt_tokens usage.completion_tokens usage.total_tokens")
CACHED_TOKENS = (
    "Cached tokens came from the prefix cache; 0 where the worker does not know ([tokens](tokens.md#cached-tokens))."
)
DETAILED_USAGE = partial(
    Answer,
    fields="usage usage.prompt_tokens usage.completion_tokens usage.total_tokens usage.prompt_tokens_details "
    "usage.prompt_tokens_details.cached_tokens usage.completion_tokens_details "
    "usage.completion_tokens_details.reasoning_tokens",
)
USAGE_OF_OTHER_KINDS = partial(
    Answer,
    fields="usage.prompt_tokens_details.audio_tokens usage.completion_tokens_details.audio_tokens "
    "usage.completion_tokens_details.accepted_prediction_tokens "
    "usage.completion_tokens_details.rejected_prediction_tokens",
)
OPTIONAL_USAGE = partial(
    Answer,
    fields="usage.prompt_tokens_details.text_tokens usage.prompt_tokens_details.image_tokens "
    "usage.prompt_tokens_details.cache_write_tokens usage.completion_tokens_details.text_tokens",
    how="Optional in the reference. All tokens are text tokens, and writing to the cache is free.",
)
ERROR = partial(Answer, fields="error error.message error.type error.param error.code")
