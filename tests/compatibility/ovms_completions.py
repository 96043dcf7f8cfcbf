"""OpenVINO Model Server's plain completions."""

from api.dialects.ovms import ModelServerCompletions
from tests.compatibility.common import (
    CONFIDENCE,
    ECHO,
    LOGIT_BIAS,
    PLAIN_LOGPROBS,
    PLAIN_TOP_LOGPROBS,
    SPECULATION,
    STREAM,
)
from tests.compatibility.ovms import MODEL_SERVER_ERROR, MODEL_SERVER_USAGE
from tests.compatibility.rows import Answer, Interface, Request

_PLAIN_REQUESTS = (
    Request(fields="model prompt", how="As under `/v1`."),
    Request(
        fields="max_tokens ignore_eos stop include_stop_str_in_output skip_special_tokens",
        body={
            "max_tokens": 5,
            "ignore_eos": True,
            "stop": "a",
            "include_stop_str_in_output": True,
            "skip_special_tokens": False,
        },
        how="As under `/v1/chat/completions`.",
    ),
    STREAM(how="As under `/v1/chat/completions`."),
    Request(
        fields="logprobs",
        when="0 or 1",
        body={"logprobs": 1},
        how="1: those of the sampled tokens.",
    ),
    Request(fields="logprobs", when="2 or more", body={"logprobs": 2}),
    LOGIT_BIAS(),
    ECHO(how="The prompt precedes the text."),
    Request(
        fields="n best_of length_penalty",
        body={"n": 2, "best_of": 3, "length_penalty": 0.5},
        how="Beam search, as under `/v3/chat/completions`.",
    ),
    Request(
        fields="temperature top_p min_p top_k repetition_penalty frequency_penalty presence_penalty seed",
        body={
            "temperature": 0.5,
            "top_p": 0.5,
            "min_p": 0.1,
            "top_k": -1,
            "repetition_penalty": 1.1,
            "frequency_penalty": 1,
            "presence_penalty": 1,
            "seed": 7,
        },
        how="As under `/v1/chat/completions`.",
    ),
    SPECULATION(how="As under `/v1/chat/completions`."),
    CONFIDENCE(how="As under `/v1/chat/completions`."),
    Request(fields="suffix", body={"suffix": "x"}),
    Request(fields="user", body={"user": "me"}),
    Request(fields="stop_token_ids", body={"stop_token_ids": [1]}),
)


MODEL_SERVER_COMPLETIONS = Interface(
    title="OpenVINO Model Server completions",
    route="POST /v3/completions",
    about="The fields of `/v3/chat/completions` that apply, and `prompt` and `echo`.",
    dialect=lambda query, headers: ModelServerCompletions(),
    plain={"model": "m", "prompt": "Hello"},
    requests=_PLAIN_REQUESTS,
    answers=(
        Answer(
            fields="choices choices[].index choices[].text choices[].finish_reason created model object",
            how="`stop` or `length`; null in chunks before the last.",
        ),
        PLAIN_LOGPROBS(),
        PLAIN_TOP_LOGPROBS(how="Null: `logprobs` is 0 or 1 here."),
        MODEL_SERVER_USAGE,
        Answer(fields="id", how="Not in the reference; OpenAI's SDK expects it."),
        Answer(fields="system_fingerprint", how="The reference does not have it."),
        MODEL_SERVER_ERROR,
    ),
)
