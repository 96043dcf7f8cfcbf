"""OpenAI's plain completions."""

from api.dialects.openai.completions import OpenAICompletions
from tests.compatibility.rows import Answer, Interface, Request

_UNIT = "tests/unit/dialects/test_openai_completions.py::"
_SERVED = _UNIT + "test_every_served_field"
_REFUSED = _UNIT + "test_what_is_refused_is_named"
_SDK = "tests/acceptance/test_openai_sdk.py::test_plain_completions"

_REQUESTS = (
    Request(
        fields="model prompt",
        how="One text or several, or token ids. Here special tokens in a text are special tokens.",
        test=_UNIT + "test_the_forms_of_prompts",
    ),
    Request(
        fields="best_of n",
        body={"n": 2, "best_of": 3},
        how="The likeliest `n` of `best_of`, by the mean log probability of their tokens.",
        test="tests/unit/test_answers.py::test_the_likeliest_of_each_prompt",
    ),
    Request(
        fields="echo",
        body={"echo": True},
        how="The prompt stands before the text, in streams too.",
        test="tests/acceptance/test_sampling.py::test_a_prompt_is_repeated_before_its_text",
    ),
    Request(fields="echo", when="with logprobs", body={"echo": True, "logprobs": 0}, test=_REFUSED),
    Request(fields="logprobs", when="0", body={"logprobs": 0}, how="The chosen tokens' own.", test=_SDK),
    Request(fields="logprobs", when="1 to 5", body={"logprobs": 2}, test=_REFUSED),
    Request(
        fields="frequency_penalty presence_penalty temperature top_p seed user",
        body={"frequency_penalty": 1, "presence_penalty": 1, "temperature": 0.5, "top_p": 0.5, "seed": 7, "user": "u"},
        how="As in chats.",
        test=_SERVED,
    ),
    Request(fields="max_tokens", body={"max_tokens": 5}, how="16 unless set.", test=_UNIT + "test_a_plain_request"),
    Request(fields="stop", body={"stop": ["a"]}, how="As in chats.", test=_SERVED),
    Request(
        fields="stream stream_options stream_options.include_usage",
        body={"stream": True, "stream_options": {"include_usage": True}},
        how="As in chats.",
        test=_UNIT + "test_a_stream_with_usage",
    ),
    Request(
        fields="stream_options.include_obfuscation",
        body={"stream": True, "stream_options": {"include_obfuscation": True}},
        test=_REFUSED,
    ),
    Request(fields="logit_bias", body={"logit_bias": {"1": 1}}, test=_REFUSED),
    Request(fields="suffix", body={"suffix": "x"}, test=_REFUSED),
)

_ANSWERS = (
    Answer(
        fields="id object created model system_fingerprint choices choices[].index choices[].text "
        "choices[].finish_reason",
        how="`system_fingerprint` names the engine and the model.",
        test=_SDK,
    ),
    Answer(
        fields="choices[].logprobs choices[].logprobs.tokens choices[].logprobs.token_logprobs "
        "choices[].logprobs.text_offset",
        how="One for each token of the text.",
        test=_UNIT + "test_log_probabilities_tell_where_tokens_begin",
    ),
    Answer(
        fields="choices[].logprobs.top_logprobs",
        how="The engine tells the chosen token's alone.",
        test=_UNIT + "test_log_probabilities_tell_where_tokens_begin",
    ),
    Answer(
        fields="usage usage.prompt_tokens usage.completion_tokens usage.total_tokens usage.prompt_tokens_details "
        "usage.prompt_tokens_details.cached_tokens usage.completion_tokens_details "
        "usage.completion_tokens_details.reasoning_tokens",
        how="Every prompt counts once.",
        test="tests/unit/test_answers.py::test_every_prompt_counts_once",
    ),
    Answer(
        fields="usage.prompt_tokens_details.audio_tokens usage.completion_tokens_details.audio_tokens "
        "usage.completion_tokens_details.accepted_prediction_tokens "
        "usage.completion_tokens_details.rejected_prediction_tokens",
        how="There is only text.",
        test="tests/unit/dialects/test_openai_render.py::test_a_stream_with_usage",
    ),
    Answer(
        fields="usage.prompt_tokens_details.text_tokens usage.prompt_tokens_details.image_tokens "
        "usage.prompt_tokens_details.cache_write_tokens usage.completion_tokens_details.text_tokens",
        how="Optional; all tokens are those of text, and writing to the cache costs nothing.",
        test=_UNIT + "test_a_completion",
    ),
    Answer(
        fields="error error.message error.type error.param error.code",
        how="As in chats.",
        test="tests/integration/test_openai_routes.py::test_errors_of_plain_completions",
    ),
)

COMPLETIONS = Interface(
    title="OpenAI completions",
    route="POST /v1/completions",
    about="Every field of the official Python SDK. Fields of neither are refused.",
    dialect=lambda query, headers: OpenAICompletions(),
    plain={"model": "m", "prompt": "Hello"},
    requests=_REQUESTS,
    answers=_ANSWERS,
)
