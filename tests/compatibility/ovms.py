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
from tests.compatibility.rows import PAGE_TESTS, Answer, Interface, Request

_UNIT = "tests/unit/api/dialects/test_ovms.py::"
_SAMPLING = _UNIT + "test_sampling_fields"
_REFUSED = PAGE_TESTS + "test_what_is_refused_names_its_field"
_CURRENT = PAGE_TESTS + "test_the_page_is_current"
_ROUTES = "tests/integration/test_ovms_routes.py::"
_MODEL = "tests/acceptance/test_ovms.py::"
_STRUCTURE = "tests/acceptance/test_structured_output.py::"
_ENGINE = "tests/acceptance/test_engine.py::"

_IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}

_MESSAGES = (
    MODEL(test=_ROUTES + "test_refusals_have_openais_form"),
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
        test=_MODEL + "test_an_answer_whole_and_streamed",
    ),
    Request(
        fields="messages[].content[].type messages[].content[].image_url messages[].content[].image_url.url",
        when="image_url",
        body={"messages": [{"role": "user", "content": [_IMAGE]}]},
        how=IMAGES + " Also paths under `--allowed-local-media-path`.",
        test=_UNIT + "test_the_three_forms_of_image_url",
    ),
)

_GENERIC = (
    STOP(
        how="Up to 4. In streams, the text includes the stop string by default.",
        test=_MODEL + "test_a_stop_string_ends_a_stream_and_is_shown_there",
    ),
    Request(
        fields="include_stop_str_in_output",
        body={"include_stop_str_in_output": True},
        how="Default: `true` in streams, else `false`.",
        test="tests/acceptance/test_sampling.py::test_a_stop_string_is_shown_where_asked_for",
    ),
    Request(
        fields="include_stop_str_in_output stream",
        when="false in a stream",
        body={"include_stop_str_in_output": False, "stream": True},
        test=_UNIT + "test_broken_rules_are_refused_by_name",
    ),
    STREAM(
        how="The first chunk, sent with the first token, has the role and `null` as content.",
        test=_ROUTES + "test_a_streamed_answer_equals_the_whole_one",
    ),
    MAX_TOKENS(how="Default: as many as the context allows.", test=_SAMPLING),
    MAX_COMPLETION_TOKENS(how="The newer name, used in the reference's examples.", test=_SAMPLING),
    Request(
        fields="ignore_eos",
        body={"ignore_eos": True},
        how="Generation continues to the limit.",
        test=_MODEL + "test_ignoring_the_end_fills_the_limit",
    ),
    LOGPROBS(test=_MODEL + "test_log_probabilities_belong_to_the_text"),
    TOP_LOGPROBS_REQUEST(),
    LOGIT_BIAS(),
    Request(
        fields="skip_special_tokens",
        body={"skip_special_tokens": False},
        how="`false`: the text includes them, and tool calls and reasoning are not parsed.",
        test=_MODEL + "test_special_tokens_are_shown_where_asked_for",
    ),
    Request(
        fields="tools tool_choice parallel_tool_calls",
        body={"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False},
        how="`tool_choice` is `none`, `auto`, `required` or a function. As under `/v1`.",
        test=_ROUTES + "test_special_tokens_are_kept_on_request",
    ),
    Request(
        fields="response_format response_format.type response_format.json_schema response_format.json_schema.schema",
        when="json_schema; also text, json_object",
        body={"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}}},
        how="Enforced by a grammar. A format that cannot be enforced is refused.",
        test=_UNIT + "test_openais_response_formats",
    ),
    Request(
        fields="response_format response_format.type response_format.value",
        when="const_string, regex, grammar, sequence, triggered_tags and XGrammar's others, or a whole structural_tag",
        body={"response_format": {"type": "const_string", "value": "Hello"}},
        how="Enforced by a grammar.",
        test=_STRUCTURE + "test_structural_tags_hold",
    ),
    Request(
        fields="chat_template_kwargs",
        body={"chat_template_kwargs": {"enable_thinking": False}},
        how="Passed to the chat template. Names that the service sets itself are refused.",
        test=_UNIT + "test_the_other_fields",
    ),
)

_SAMPLED = (
    Request(
        fields="temperature top_p",
        body={"temperature": 0.5, "top_p": 0.5},
        how="Default: the model's own, else 1.",
        test=_MODEL + "test_the_models_own_sampling_holds_where_nobody_sets_one",
    ),
    Request(
        fields="min_p top_k repetition_penalty",
        body={"min_p": 0.1, "top_k": -1, "repetition_penalty": 1.1},
        how="`top_k`: default 40; -1 disables it.",
        test=_MODEL + "test_sampling_settings_reach_the_engine",
    ),
    PENALTIES(test=_SAMPLING),
    SEED(how="Default: random.", test=_MODEL + "test_sampling_settings_reach_the_engine"),
)

_BEAMS = (
    Request(
        fields="n best_of",
        body={"n": 2, "best_of": 3},
        how="`best_of` above 1 is the width of a beam search, whose stream begins when the search is complete. A "
        "worker refuses beam search with other penalties, structured output or forced tool calls.",
        test="tests/acceptance/test_sampling.py::test_a_beam_search_whole_and_streamed",
    ),
    Request(
        fields="length_penalty",
        body={"best_of": 3, "length_penalty": 0.5},
        how="Default: 1. No effect without beam search.",
        test="tests/acceptance/test_sampling.py::test_a_length_penalty_above_zero_makes_beams_longer",
    ),
    Request(
        fields="n",
        when="above best_of",
        body={"n": 3},
        test=_UNIT + "test_broken_rules_are_refused_by_name",
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
        test=_UNIT + "test_broken_rules_are_refused_by_name",
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

MODEL_SERVER_ERROR = ERROR(
    how="The reference describes no errors; these have OpenAI's form.", test=_ROUTES + "test_refusals_have_openais_form"
)
MODEL_SERVER_USAGE = USAGE(how="In streams, if requested.", test=_UNIT + "test_the_usage_is_three_numbers")

_ANSWERS = (
    Answer(
        fields="choices choices[].index choices[].finish_reason created model object",
        how="`stop`, `length` or `tool_calls`; null in chunks before the last.",
        test=_MODEL + "test_an_answer_whole_and_streamed",
    ),
    TEXT(test=_MODEL + "test_an_answer_whole_and_streamed"),
    REASONING(),
    TOOL_CALLS(test=_ROUTES + "test_special_tokens_are_kept_on_request"),
    TOKEN_LOGPROBS(
        how=(
            "In OpenAI's form, which the reference lists as unsupported. Also in streams, unlike in the model server."
        ),
        test=_MODEL + "test_log_probabilities_belong_to_the_text",
    ),
    TOP_LOGPROBS(),
    Answer(
        fields="choices[].message.refusal choices[].logprobs.refusal",
        how="Not in the reference; OpenAI's SDK expects them.",
        test=_CURRENT,
    ),
    MODEL_SERVER_USAGE,
    Answer(
        fields="id",
        how="Not in the reference; OpenAI's SDK expects it.",
        test=_ROUTES + "test_a_streamed_answer_equals_the_whole_one",
    ),
    Answer(
        fields="system_fingerprint choices[].message.function_call",
        how="The reference does not have them.",
        test=_ROUTES + "test_a_streamed_answer_equals_the_whole_one",
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
        *(Request(fields=name, body={name: 1}, test=_REFUSED) for name in _LISTED),
    ),
    answers=_ANSWERS,
)
