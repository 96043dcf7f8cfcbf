"""OpenVINO Model Server's chat completions."""

from api.dialects.ovms import ModelServer
from tests.compatibility.common import (
    CALL,
    CONFIDENCE,
    ERROR,
    IMAGES,
    LOGIT_BIAS,
    LOGPROBS,
    MAX_COMPLETION_TOKENS,
    MAX_TOKENS,
    MODEL,
    PENALTIES,
    REASONING,
    SEED,
    SPECULATION,
    STOP,
    STREAM,
    TEXT,
    TOKEN_LOGPROBS,
    TOOL,
    TOOL_CALLS,
    TOP_LOGPROBS,
    TOP_LOGPROBS_REQUEST,
    USAGE,
    USER,
)
from tests.compatibility.rows import Answer, Interface, Request

_IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}

_MESSAGES = (
    MODEL(),
    Request(
        fields="messages messages[].role messages[].content messages[].content[].type messages[].content[].text "
        "messages[].tool_calls messages[].tool_call_id",
        body={
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
                {"role": "assistant", "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c", "content": "1"},
            ]
        },
        how="As under `/v1`.",
    ),
    Request(
        fields="messages[].content[].type messages[].content[].image_url messages[].content[].image_url.url",
        when="image_url",
        body={"messages": [{"role": "user", "content": [_IMAGE]}]},
        how=IMAGES + " Also paths under `--allowed-local-media-path`.",
    ),
)

_GENERIC = (
    STOP(
        how="Up to 4. In streams, the text includes the stop string by default.",
    ),
    Request(
        fields="include_stop_str_in_output",
        body={"include_stop_str_in_output": True},
        how="Default: `true` in streams, else `false`.",
    ),
    Request(
        fields="include_stop_str_in_output stream",
        when="false in a stream",
        body={"include_stop_str_in_output": False, "stream": True},
    ),
    STREAM(
        how="The first chunk, sent with the first token, has the role and `null` as content.",
    ),
    MAX_TOKENS(how="Default: as many as the context allows."),
    MAX_COMPLETION_TOKENS(how="The newer name, used in the reference's examples."),
    Request(
        fields="ignore_eos",
        body={"ignore_eos": True},
        how="Generation continues to the limit.",
    ),
    LOGPROBS(),
    TOP_LOGPROBS_REQUEST(),
    LOGIT_BIAS(),
    Request(
        fields="skip_special_tokens",
        body={"skip_special_tokens": False},
        how="`false`: the text includes them, and tool calls and reasoning are not parsed.",
    ),
    Request(
        fields="tools tool_choice parallel_tool_calls",
        body={"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False},
        how="`tool_choice` is `none`, `auto`, `required` or a function. As under `/v1`.",
    ),
    Request(
        fields="response_format response_format.type response_format.json_schema response_format.json_schema.schema",
        when="json_schema; also text, json_object",
        body={"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}}},
        how="Enforced by a grammar. A format that cannot be enforced is refused.",
    ),
    Request(
        fields="response_format response_format.type response_format.value",
        when="const_string, regex, grammar, sequence, triggered_tags and XGrammar's others, or a whole structural_tag",
        body={"response_format": {"type": "const_string", "value": "Hello"}},
        how="Enforced by a grammar.",
    ),
    Request(
        fields="chat_template_kwargs",
        body={"chat_template_kwargs": {"enable_thinking": False}},
        how="Passed to the chat template. Names that the service sets itself are refused.",
    ),
)

_SAMPLED = (
    Request(
        fields="temperature top_p",
        body={"temperature": 0.5, "top_p": 0.5},
        how="Default: the model's own, else 1.",
    ),
    Request(
        fields="min_p top_k repetition_penalty",
        body={"min_p": 0.1, "top_k": -1, "repetition_penalty": 1.1},
        how="`top_k`: default 40; -1 disables it.",
    ),
    PENALTIES(),
    SEED(how="Default: random."),
)

_BEAMS = (
    Request(
        fields="n best_of",
        body={"n": 2, "best_of": 3},
        how="`best_of` above 1 is the width of a beam search, whose stream begins when the search is complete. A "
        "worker refuses beam search with other penalties, structured output or forced tool calls.",
    ),
    Request(
        fields="length_penalty",
        body={"best_of": 3, "length_penalty": 0.5},
        how="Default: 1. No effect without beam search.",
    ),
    Request(
        fields="n",
        when="above best_of",
        body={"n": 3},
    ),
)

_SPECULATION = (
    SPECULATION(
        how="Defaults: 5 and 3. Need `--prompt-lookup` or a draft model; a worker without either refuses them."
    ),
    CONFIDENCE(how="Needs a draft model; a worker without one refuses it."),
    Request(
        fields="num_assistant_tokens assistant_confidence_threshold",
        when="both",
        body={"num_assistant_tokens": 5, "assistant_confidence_threshold": 0.4},
    ),
)

_LISTED = (
    "user",
    "function_call",
    "functions",
    "use_beam_search",
    "early_stopping",
    "stop_token_ids",
    "min_tokens",
    "prompt_logprobs",
    "detokenize",
    "spaces_between_special_tokens",
    "logits_processors",
    "truncate_prompt_tokens",
)
"""What the reference itself calls unsupported."""

MODEL_SERVER_ERROR = ERROR(how="The reference describes no errors; these have OpenAI's form.")
MODEL_SERVER_USAGE = USAGE(how="In streams, if requested.")

_ANSWERS = (
    Answer(
        fields="choices choices[].index choices[].finish_reason created model object",
        how="`stop`, `length` or `tool_calls`; null in chunks before the last.",
    ),
    TEXT(),
    REASONING(),
    TOOL_CALLS(),
    TOKEN_LOGPROBS(
        how=(
            "In OpenAI's form, which the reference lists as unsupported. Also in streams, unlike in the model server."
        ),
    ),
    TOP_LOGPROBS(),
    Answer(
        fields="choices[].message.refusal choices[].logprobs.refusal",
        how="Not in the reference; OpenAI's SDK expects them.",
    ),
    MODEL_SERVER_USAGE,
    Answer(
        fields="id",
        how="Not in the reference; OpenAI's SDK expects it.",
    ),
    Answer(
        fields="system_fingerprint choices[].message.function_call",
        how="The reference does not have them.",
    ),
    MODEL_SERVER_ERROR,
)

MODEL_SERVER = Interface(
    title="OpenVINO Model Server chat completions",
    route="POST /v3/chat/completions",
    about="The fields of the reference, including those of OpenAI and vLLM that it lists as unsupported.",
    dialect=lambda query, headers: ModelServer(),
    plain={"model": "m", "messages": [USER]},
    requests=(
        *_MESSAGES,
        *_GENERIC,
        *_BEAMS,
        *_SAMPLED,
        *_SPECULATION,
        *(Request(fields=name, body={name: 1}) for name in _LISTED),
    ),
    answers=_ANSWERS,
)
