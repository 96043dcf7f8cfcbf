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

_REQUESTS = (
    Request(
        fields="model prompt",
        how="A text, several texts, or token ids. The spelling of a special token in a text becomes that token.",
    ),
    Request(
        fields="best_of n",
        body={"n": 2, "best_of": 3},
        how="The `n` best of `best_of` choices, by mean log probability per token.",
    ),
    ECHO(how="The prompt precedes the text. Also in streams."),
    Request(
        fields="echo",
        when="with logprobs",
        body={"echo": True, "logprobs": 1, "max_tokens": 0},
        how="Includes the log probabilities of the prompt; `null` for its first token. `max_tokens` may be 0. Needs "
        "`--logits`.",
    ),
    Request(fields="max_tokens", when="0 without echo", body={"max_tokens": 0}),
    Request(fields="logprobs", when="0", body={"logprobs": 0}, how="Those of the sampled tokens."),
    Request(
        fields="logprobs",
        when="1 to 5",
        body={"logprobs": 2},
        how="Number of most likely tokens, of the model's unmodified distribution. Needs `--logits`.",
    ),
    Request(
        fields="frequency_penalty presence_penalty temperature top_p seed user",
        body={"frequency_penalty": 1, "presence_penalty": 1, "temperature": 0.5, "top_p": 0.5, "seed": 7, "user": "u"},
        how="As under `/v1/chat/completions`.",
    ),
    MAX_TOKENS(how="Default: 16."),
    Request(fields="stop", body={"stop": ["a"]}, how="As under `/v1/chat/completions`."),
    STREAM(how="As under `/v1/chat/completions`."),
    Request(
        fields="stream_options.include_obfuscation",
        body={"stream": True, "stream_options": {"include_obfuscation": True}},
    ),
    LOGIT_BIAS(),
    Request(fields="suffix", body={"suffix": "x"}),
)

_ANSWERS = (
    Answer(
        fields="id object created model system_fingerprint choices choices[].index choices[].text "
        "choices[].finish_reason",
        how="`system_fingerprint` names the engine and the model.",
    ),
    PLAIN_LOGPROBS(),
    PLAIN_TOP_LOGPROBS(),
    PROMPT_LOGPROBS(fields="choices[].prompt_logprobs"),
    TOKEN_IDS(fields="choices[].token_ids choices[].prompt_token_ids"),
    DETAILED_USAGE(
        how=f"Every prompt counts once. {CACHED_TOKENS}",
    ),
    USAGE_OF_OTHER_KINDS(how="There is only text."),
    OPTIONAL_USAGE(),
    ERROR(
        how="As under `/v1/chat/completions`.",
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
