"""Plain completions: what bodies become, what is refused, and answers that the official SDK's types read."""

import json
from typing import Any

from openai.types import Completion

from api.dialects.base.interface import Choice, TokenLogprob, Usage
from api.dialects.openai import OpenAICompletions
from api.dialects.openai.completions_render import CompletionResponseEncoder
from shared.protocol.errors import Problem, ProblemKind
from shared.protocol.events import PromptLogprobs, RankedToken, TopToken
from shared.protocol.request import ChatRequest, PromptScoring, Sampling
from tests.support.sdk_types import CompletionChunk, checked

DIALECT = OpenAICompletions()
USAGE = Usage(prompt_tokens=5, completion_tokens=7, cached_tokens=3)


def parse(**fields: Any) -> ChatRequest:
    return DIALECT.parse(json.dumps({"model": "m", "prompt": "Once"} | fields).encode())


def rendering(**fields: Any) -> CompletionResponseEncoder:
    request = ChatRequest(model="a/model", **({"prompts": ("Once",)} | fields))
    return DIALECT.render(request, response_id="0f", created=5, fingerprint="fp_1")


def chunk(event: bytes) -> CompletionChunk:
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    return checked(CompletionChunk, event.removeprefix(b"data: "))


def test_a_stream() -> None:
    answer = rendering(stream=True, n=2)
    assert answer.opening(1) == b""
    chunks = [
        chunk(part) for part in (answer.content(1, " upon\n"), answer.reasoning(1, " a"), answer.closing(1, "length"))
    ]
    assert [part.choices[0].text for part in chunks] == [" upon\n", " a", ""]
    assert [part.choices[0].finish_reason for part in chunks] == [None, None, "length"]
    assert {part.choices[0].index for part in chunks} == {1}
    assert {(part.id, part.object, part.created, part.model, part.system_fingerprint) for part in chunks} == {
        ("cmpl-0f", "text_completion", 5, "a/model", "fp_1")
    }
    assert answer.usage(USAGE) == b""
    assert answer.done == b"data: [DONE]\n\n"


def test_a_stream_with_usage() -> None:
    answer = rendering(stream=True, include_usage=True)
    first = chunk(answer.content(0, "x"))
    assert first.usage is None
    assert "usage" in first.model_fields_set
    last = chunk(answer.usage(USAGE))
    assert last.usage is not None
    assert (last.choices, last.usage.total_tokens) == ([], 12)


def test_a_completion() -> None:
    choices = [Choice(index=0, text=" upon", reason="stop"), Choice(index=1, text="", reason="length")]
    parsed = checked(Completion, rendering(n=2).completion(choices, USAGE))
    assert [(choice.index, choice.text, choice.finish_reason) for choice in parsed.choices] == [
        (0, " upon", "stop"),
        (1, "", "length"),
    ]
    assert parsed.usage is not None
    assert parsed.usage.total_tokens == 12


def test_each_choice_repeats_its_own_prompt() -> None:
    answer = rendering(prompts=("Once", "Twice"), n=2, echo=True)
    assert [chunk(answer.opening(choice)).choices[0].text for choice in range(4)] == ["Once", "Once", "Twice", "Twice"]
    choices = [Choice(index=index, text="!", reason="stop") for index in range(4)]
    parsed = checked(Completion, answer.completion(choices, USAGE))
    assert [choice.text for choice in parsed.choices] == ["Once!", "Once!", "Twice!", "Twice!"]


def test_the_most_likely_tokens_include_the_sampled_one() -> None:
    top = (TopToken(b" a", -0.5), TopToken(b"\xc3", -1.5))
    tokens = (TokenLogprob(b" a", -0.5, top), TokenLogprob(b" z", -7.5, top))
    whole = rendering().completion([Choice(index=0, text=" a z", reason="stop", logprobs=tokens)], USAGE)
    logprobs = checked(Completion, whole).choices[0].logprobs
    assert logprobs is not None
    assert logprobs.top_logprobs == [
        {" a": -0.5, "bytes:\\xc3": -1.5},
        {" a": -0.5, "bytes:\\xc3": -1.5, " z": -7.5},
    ]


def test_log_probabilities_tell_where_tokens_begin() -> None:
    tokens = [TokenLogprob(piece, -0.5) for piece in (b" a", b"\xc3", b"\xa9", b"b")]
    whole = rendering().completion([Choice(index=0, text=" aéb", reason="stop", logprobs=tuple(tokens))], USAGE)
    logprobs = checked(Completion, whole).choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens == [" a", "bytes:\\xc3", "bytes:\\xa9", "b"]
    assert logprobs.token_logprobs == [-0.5] * 4
    assert logprobs.top_logprobs is None
    assert logprobs.text_offset == [0, 2, 2, 3]
    answer = rendering(stream=True)
    pieces = [
        answer.content(0, " a", tokens[:1]),
        answer.content(0, "é", tokens[1:3]),
        answer.content(0, "b", tokens[3:]),
    ]
    offsets: list[int] = []
    for piece in pieces:
        part = chunk(piece).choices[0].logprobs
        assert part is not None
        offsets += part.text_offset or []
    assert offsets == [0, 2, 2, 3]


SCORED = PromptLogprobs(
    first=(0, b"<s>"),
    rest=(RankedToken(5, b"On", -0.5, 1), RankedToken(7, b"c\xc3", -2.5, 3), RankedToken(8, b"\xa9", -0.1, 1)),
    top=(
        (RankedToken(5, b"On", -0.5, 1), RankedToken(6, b"In", -1.0, 2)),
        (RankedToken(5, b"On", -0.4, 1), RankedToken(6, b"In", -1.5, 2)),
        (RankedToken(8, b"\xa9", -0.1, 1), RankedToken(6, b"In", -1.25, 2)),
    ),
)
"""A prompt that begins with a token that the client has not sent."""

ECHOED: dict[str, list[Any]] = {
    "tokens": ["<s>", "On", "bytes:\\x63\\xc3", "bytes:\\xa9"],
    "token_logprobs": [None, -0.5, -2.5, -0.1],
    "top_logprobs": [
        None,
        {"On": -0.5, "In": -1.0},
        {"On": -0.4, "In": -1.5, "bytes:\\x63\\xc3": -2.5},
        {"bytes:\\xa9": -0.1, "In": -1.25},
    ],
    "text_offset": [0, 0, 2, 3],
}


def test_an_echoed_prompt_has_its_log_probabilities() -> None:
    """OpenAI's form: null for the first token, offsets in the whole text."""
    sampling = Sampling(logprobs=True, top_logprobs=2, prompt_scoring=PromptScoring(top=2, param="echo"))
    answer = rendering(prompts=("Oncé",), echo=True, sampling=sampling)
    own = TokenLogprob(b"!", -0.25, (TopToken(b"!", -0.25), TopToken(b"?", -3.0)))
    choice = Choice(index=0, text="!", reason="length", logprobs=(own,), prompt=SCORED)
    (whole,) = json.loads(answer.completion([choice], USAGE))["choices"]
    assert whole["text"] == "Oncé!"
    assert "prompt_logprobs" not in whole
    assert whole["logprobs"] == {
        "tokens": [*ECHOED["tokens"], "!"],
        "token_logprobs": [*ECHOED["token_logprobs"], -0.25],
        "top_logprobs": [*ECHOED["top_logprobs"], {"!": -0.25, "?": -3.0}],
        "text_offset": [*ECHOED["text_offset"], 4],
    }
    assert answer.opening(0) == b""
    first, second = (
        json.loads(event.removeprefix(b"data: "))["choices"][0]
        for event in (answer.prompt(0, SCORED), answer.content(0, "!", [own]))
    )
    assert (first["text"], first["logprobs"]) == ("Oncé", ECHOED)
    assert second["logprobs"]["text_offset"] == [4]


def test_an_echoed_prompt_of_token_ids_is_shown_as_text() -> None:
    sampling = Sampling(logprobs=True, prompt_scoring=PromptScoring(param="echo"))
    answer = rendering(prompts=((0, 5, 7, 8),), echo=True, sampling=sampling)
    choice = Choice(index=0, text="!", reason="length", logprobs=(TokenLogprob(b"!", -0.25),), prompt=SCORED)
    (whole,) = json.loads(answer.completion([choice], USAGE))["choices"]
    assert whole["text"] == "<s>Oncé!"
    assert whole["logprobs"]["top_logprobs"] is None
    assert whole["logprobs"]["text_offset"] == [0, 3, 5, 6, 7]


def test_prompt_log_probabilities_in_the_form_of_vllm() -> None:
    sampling = Sampling(prompt_scoring=PromptScoring(top=2))
    choice = Choice(index=0, text="!", reason="length", prompt=SCORED)
    (whole,) = json.loads(rendering(prompt_logprobs=1, sampling=sampling).completion([choice], USAGE))["choices"]
    assert (whole["text"], whole["logprobs"]) == ("!", None)
    assert whole["prompt_logprobs"] == [
        None,
        {"5": {"logprob": -0.5, "rank": 1, "decoded_token": "On"}},
        {
            "7": {"logprob": -2.5, "rank": 3, "decoded_token": "c\ufffd"},
            "5": {"logprob": -0.4, "rank": 1, "decoded_token": "On"},
        },
        {"8": {"logprob": -0.1, "rank": 1, "decoded_token": "\ufffd"}},
    ]


def test_a_failure_ends_the_stream() -> None:
    error, done, _ = rendering().failure(Problem(kind=ProblemKind.LOST, message="why")).decode().split("\n\n")
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == "answer_lost"
    assert done == "data: [DONE]"
