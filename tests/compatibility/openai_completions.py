"""OpenAI's plain completions."""

from api.dialects.openai.completions import OpenAICompletions
from tests.compatibility.common import (
    CACHED_TOKENS,
    DETAILED_USAGE,
    ECHO,
    ERROR,
    LOGIT_BIAS,
    MAX_TOKENS,
    OPTIONAL_USAGE,
    PLAIN_LOGPROBS,
    PLAIN_TOP_LOGPROBS,
    PROMPT_LOGPROBS,
    STREAM,
    TOKEN_IDS,
    USAGE_OF_OTHER_KINDS,
)
from tests.compatibility.rows import Answer, Interface, Request
from tests.compatibility.vllm import VLLM_FIELDS

_UNIT = "tests/unit/api/dialects/test_openai_completions.py::"
_SERVED = _UNIT + "test_every_served_field"
_REFUSED = _UNIT + "test_what_is_refused_is_named"
_SDK = "tests/acceptance/test_openai_sdk.py::test_plain_completions"

_REQUESTS = (
    Request(
        fields="model prompt",
        how="A text, several texts, or token ids. The spelling of a special token in a text becomes that token.",
        test=_UNIT + "test_the_forms_of_prompts",
    ),
    Request(
        fields="best_of n",
        body={"n": 2, "best_of": 3},
        how="The `n` best of `best_of` choices, by mean log probability per token.",
        test="tests/unit/api/chat/test_choices.py::test_the_likeliest_of_each_prompt",
    ),
    ECHO(how="The prompt precedes the text. Also in streams."),
    Request(
        fields="echo",
        when="with logprobs",
        body={"echo": True, "logprobs": 1, "max_tokens": 0},
        how="Includes the log probabilities of the prompt; `null` for its first token. `max_tokens` may be 0. Needs "
        "`--logits`.",
        test="tests/acceptance/test_scoring.py::test_what_an_evaluation_harness_sends",
    ),
    Request(fields="max_tokens", when="0 without echo", body={"max_tokens": 0}, test=_REFUSED),
    Request(fields="logprobs", when="0", body={"logprobs": 0}, how="Those of the sampled tokens.", test=_SDK),
    Request(
        fields="logprobs",
        when="1 to 5",
        body={"logprobs": 2},
        how="Number of most likely tokens, of the model's unmodified distribution. Needs `--logits`.",
        test=_SDK,
    ),
    Request(
        fields="frequency_penalty presence_penalty temperature top_p seed user",
        body={"frequency_penalty": 1, "presence_penalty": 1, "temperature": 0.5, "top_p": 0.5, "seed": 7, "user": "u"},
        how="As under `/v1/chat/completions`.",
        test=_SERVED,
    ),
    MAX_TOKENS(how="Default: 16.", test=_UNIT + "test_a_plain_request"),
    Request(fields="stop", body={"stop": ["a"]}, how="As under `/v1/chat/completions`.", test=_SERVED),
    STREAM(how="As under `/v1/chat/completions`.", test=_UNIT + "test_a_stream_with_usage"),
    Request(
        fields="stream_options.include_obfuscation",
        body={"stream": True, "stream_options": {"include_obfuscation": True}},
        test=_REFUSED,
    ),
    LOGIT_BIAS(),
    Request(fields="suffix", body={"suffix": "x"}, test=_REFUSED),
)

_ANSWERS = (
    Answer(
        fields="id object created model system_fingerprint choices choices[].index choices[].text "
        "choices[].finish_reason",
        how="`system_fingerprint` names the engine and the model.",
        test=_SDK,
    ),
    PLAIN_LOGPROBS(test=_UNIT + "test_log_probabilities_tell_where_tokens_begin"),
    PLAIN_TOP_LOGPROBS(test=_UNIT + "test_the_most_likely_tokens_include_the_sampled_one"),
    PROMPT_LOGPROBS(fields="choices[].prompt_logprobs"),
    TOKEN_IDS(fields="choices[].token_ids choices[].prompt_token_ids"),
    DETAILED_USAGE(
        how=f"Every prompt counts once. {CACHED_TOKENS}",
        test="tests/unit/api/chat/test_choices.py::test_every_prompt_counts_once",
    ),
    USAGE_OF_OTHER_KINDS(how="There is only text."),
    OPTIONAL_USAGE(test=_UNIT + "test_a_completion"),
    ERROR(
        how="As under `/v1/chat/completions`.",
        test="tests/integration/test_openai_routes.py::test_errors_of_plain_completions",
    ),
)

COMPLETIONS = Interface(
    title="OpenAI completions",
    route="POST /v1/completions",
    about="The fields of the official Python SDK and of vLLM.",
    dialect=lambda query, headers: OpenAICompletions(),
    plain={"model": "m", "prompt": "Hello"},
    requests=(*_REQUESTS, *VLLM_FIELDS),
    answers=_ANSWERS,
)
