"""From a worker's events to choices, whole and streamed: parsers, log probabilities, several texts, failures."""

import codecs
import json
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.chat.calls import CallFilter
from api.chat.choices import check_size
from api.dialects.anthropic.render import MessagesResponseEncoder
from api.dialects.base.interface import Choice, ResponseEncoder, TokenLogprob
from api.dialects.openai.completions_render import CompletionResponseEncoder
from api.dialects.openai.render import ChatResponseEncoder
from shared.parsers import CallArguments, CallClosed, CallOpened, Part
from shared.protocol.errors import Problem, ProblemKind, RequestRefused
from shared.protocol.events import (
    Alternative,
    Alternatives,
    Delta,
    Event,
    Failed,
    Finished,
    FinishReason,
    PromptLogprobs,
    RankedToken,
    Rejected,
    Started,
    TopToken,
)
from shared.protocol.request import ChatRequest, Message, Prompt, Sampling, Tool, formed
from tests.support.answers import Answered, UsageRecorder, collect, sent, stream
from tests.support.jobs import request_of

STARTED = Started(worker="w", prompt_tokens=5, fingerprint="fp", cached_tokens=2)
HERMES = msgspec.structs.replace(STARTED, tools="hermes")
LOGPROBS = Sampling(logprobs=True)
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
LOST = Problem(kind=ProblemKind.LOST, message="It was lost.")


def asked(**fields: Any) -> ChatRequest:
    return request_of(**({"messages": (Message(role="user", content="Hi"),)} | fields))


def said(*texts: str, reason: FinishReason = "stop", started: Started = STARTED, logprob: float = -0.5) -> list[Event]:
    """A whole answer of one token for each text."""
    deltas = [Delta(at, (at,), text, (logprob,), (text.encode(),)) for at, text in enumerate(texts)]
    return [started, *deltas, Finished(len(texts), reason)]


async def whole(request: ChatRequest, *jobs: Sequence[Event], tally: UsageRecorder | None = None) -> list[Choice]:
    return await collect(Answered(*jobs), request, tally)


async def streamed(
    request: ChatRequest,
    *jobs: Sequence[Event],
    tally: UsageRecorder | None = None,
    encoder: ResponseEncoder | None = None,
) -> list[dict[str, Any]]:
    """The chunks of the stream."""
    rendering = encoder or ChatResponseEncoder(request, response_id="0", created=0, fingerprint="fp")
    events = (await sent(Answered(*jobs), request, rendering, tally)).decode().split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    return [json.loads(event.removeprefix("data: ")) for event in events[:-2]]


def deltas(chunks: Iterable[dict[str, Any]], field: str) -> dict[int, list[Any]]:
    """What the chunks say in one field of their deltas, by choice."""
    found: dict[int, list[Any]] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            if choice["delta"].get(field):
                found.setdefault(choice["index"], []).append(choice["delta"][field])
    return found


def reasons(chunks: Iterable[dict[str, Any]]) -> dict[int, str]:
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    return {choice["index"]: choice["finish_reason"] for choice in choices if choice["finish_reason"]}


def logprobs_of(chunks: Iterable[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    """Each chunk's text and its tokens, for chunks that have tokens."""
    choices = [choice for chunk in chunks for choice in chunk["choices"] if choice["logprobs"]]
    return [
        (choice["delta"]["content"], [token["token"] for token in choice["logprobs"]["content"]]) for choice in choices
    ]


async def test_plain_text() -> None:
    tally = UsageRecorder()
    assert await whole(asked(), said("Hel", "", "lo"), tally=tally) == [Choice(index=0, text="Hello", reason="stop")]
    assert (tally.outcome, tally.usage().completion_tokens, tally.usage().cached_tokens) == ("stop", 3, 2)
    chunks = await streamed(asked(stream=True), said("Hel", "", "lo", reason="length"))
    assert deltas(chunks, "content") == {0: ["Hel", "lo"]}
    assert reasons(chunks) == {0: "length"}


async def test_a_message_begins_with_the_number_of_its_cached_tokens() -> None:
    encoder = MessagesResponseEncoder(asked(stream=True), response_id="0")
    whole_stream = await sent(Answered(said("a")), asked(stream=True), encoder)
    usage = b'"input_tokens":3,"cache_creation_input_tokens":0,"cache_read_input_tokens":2'
    assert usage in whole_stream.partition(b"ping")[0]


async def test_choices_of_one_request_share_its_prompt() -> None:
    request = asked(n=3, include_usage=True, stream=True)
    jobs = [said("a", "b"), said("c", reason="length"), said("d", "e", "f")]
    chunks = await streamed(request, *jobs)
    assert deltas(chunks, "content") == {0: ["a", "b"], 1: ["c"], 2: ["d", "e", "f"]}
    assert reasons(chunks) == {0: "stop", 1: "length", 2: "stop"}
    assert deltas(chunks, "role") == {choice: ["assistant"] for choice in range(3)}
    usage = chunks[-1]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (5, 6)
    assert [choice.text for choice in await whole(request, *jobs)] == ["ab", "c", "def"]


@pytest.mark.parametrize("prompts", [(), ("a", "b")])
async def test_each_chunk_has_the_usage_so_far(prompts: tuple[Prompt, ...]) -> None:
    request = asked(
        messages=() if prompts else (Message(role="user", content="Hi"),),
        prompts=prompts,
        stream=True,
        include_usage=True,
        continuous_usage=True,
    )
    encoder: ResponseEncoder = (CompletionResponseEncoder if prompts else ChatResponseEncoder)(
        request, response_id="0", created=0, fingerprint="fp"
    )
    jobs = [said("a", "b", "", "c") for _ in prompts or "-"]
    chunks = await streamed(request, *jobs, encoder=encoder)
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    # The chunk of an empty text is left out; its token counts in the next one.
    assert counts == ([1, 2, 3, 4, 7, 8, 8, 8, 8] if prompts else [0, 1, 2, 4, 4, 4])
    assert all(chunk["usage"].keys() == chunks[-1]["usage"].keys() for chunk in chunks)
    plain = await streamed(formed(request, include_usage=False), *jobs)
    assert not any(chunk.get("usage") for chunk in plain)


async def test_every_prompt_counts_once() -> None:
    tally = UsageRecorder()
    prompts: tuple[Prompt, ...] = ("one", "two")
    request = asked(messages=(), prompts=prompts, n=2)
    texts = [choice.text for choice in await whole(request, said("a"), said("b"), said("c"), said("d"), tally=tally)]
    assert texts == ["a", "b", "c", "d"]
    assert (tally.usage().prompt_tokens, tally.usage().completion_tokens) == (10, 4)


async def test_images_count_once_for_all_choices_of_a_prompt() -> None:
    finished = Finished(1, "stop", 21)
    jobs = [[*said("a")[:-1], finished], [*said("b")[:-1], finished], [*said("c")[:-1], Finished(1, "stop", 30)]]
    tally = UsageRecorder()
    await whole(asked(n=2), *jobs[:2], tally=tally)
    assert tally.usage().prompt_tokens == 21
    tally = UsageRecorder()
    beams = Alternatives((Alternative((1,), "a", "stop", 0.0),), 21)
    await whole(asked(sampling=Sampling(beams=2)), [said("a")[0], beams], tally=tally)
    assert tally.usage().prompt_tokens == 21


async def test_tokens_come_with_their_text() -> None:
    events: list[Event] = [
        STARTED,
        Delta(0, (1,), "", (-1.0,), (b"\xc3",)),
        Delta(1, (2,), "é", (-2.0,), (b"\xa9",)),
        Delta(2, (3, 4), " old", (-3.0, -4.0), (b" ol", b"d")),
        Finished(5, "stop"),
    ]
    chunks = await streamed(asked(sampling=LOGPROBS, stream=True), events)
    assert logprobs_of(chunks) == [("é", ["\N{REPLACEMENT CHARACTER}"] * 2), (" old", [" ol", "d"])]
    (choice,) = await whole(asked(sampling=LOGPROBS), events)
    assert choice.logprobs == (
        TokenLogprob(b"\xc3", -1.0),
        TokenLogprob(b"\xa9", -2.0),
        TokenLogprob(b" ol", -3.0),
        TokenLogprob(b"d", -4.0),
    )


async def test_tokens_of_a_stop_string_are_left_out() -> None:
    # "STOP" was the stop string: what was held back for it never shows, nor does the token that ends the text.
    events: list[Event] = [
        STARTED,
        Delta(0, (1,), "go ", (-1.0,), (b"go S",)),
        Delta(1, (2,), "", (-2.0,), (b"TO",)),
        Delta(2, (3,), "", (-3.0,), (b"P",)),
        Finished(3, "stop"),
    ]
    (choice,) = await whole(asked(sampling=LOGPROBS), events)
    assert (choice.text, choice.logprobs) == ("go ", (TokenLogprob(b"go S", -1.0),))


async def test_text_held_back_to_the_end_brings_its_tokens() -> None:
    events: list[Event] = [
        STARTED,
        Delta(0, (1,), "", (-1.0,), (b"ST",)),
        Delta(1, (2,), "ST.", (-2.0,), (b".",)),
        Finished(2, "stop"),
    ]
    assert logprobs_of(await streamed(asked(sampling=LOGPROBS), events)) == [("ST.", ["ST", "."])]


async def test_an_answer_cut_off_by_length_has_every_token() -> None:
    events: list[Event] = [
        STARTED,
        Delta(0, (1,), "a", (-1.0,), (b"a",)),
        Delta(1, (2,), "", (-2.0,), (b"\xf0\x9f",)),
        Finished(2, "length"),
    ]
    (choice,) = await whole(asked(sampling=LOGPROBS), events)
    assert (choice.text, choice.logprobs) == ("a", (TokenLogprob(b"a", -1.0), TokenLogprob(b"\xf0\x9f", -2.0)))
    chunks = await streamed(asked(sampling=LOGPROBS), events)
    assert logprobs_of(chunks) == [("a", ["a"]), ("", ["\N{REPLACEMENT CHARACTER}"])]


@pytest.mark.parametrize(
    ("shown", "start"), [("\N{REPLACEMENT CHARACTER}", ""), ("", ""), ("\N{REPLACEMENT CHARACTER}", " ")]
)
async def test_tokens_of_invalid_utf8_and_a_dropped_space_come_with_their_text(shown: str, start: str) -> None:
    events: list[Event] = [
        STARTED,
        Delta(0, (1,), "a", (-1.0,), (f"{start}a".encode(),)),
        Delta(1, (2,), "", (-2.0,), (b"\xc3",)),
        Delta(2, (3,), f"{shown}b", (-3.0,), (b"b",)),
        Delta(3, (4,), shown, (-4.0,), (b"\xff",)),
        Delta(4, (5,), "c S", (-5.0,), (b"c ST",)),
        Delta(5, (6,), "TAR", (-6.0,), (b"AR",)),
        Delta(6, (7,), "d", (-7.0,), (b"d",)),
        Finished(7, "stop"),
    ]
    (choice,) = await whole(asked(sampling=LOGPROBS), events)
    assert [token.piece for token in choice.logprobs or ()] == [
        event.pieces[0] for event in events if isinstance(event, Delta)
    ]
    together = dict(logprobs_of(await streamed(asked(sampling=LOGPROBS), events)))
    assert together["d"] == ["d"]
    assert together["TAR"] == ["AR"]


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), st.lists(st.integers(1, 4), max_size=20))
async def test_tokens_come_once_and_in_order_however_a_text_is_split(text: str, sizes: list[int]) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")()
    left = text.encode()
    pieces: list[bytes] = []
    events: list[Event] = [STARTED]
    for size in [*sizes, 64]:
        piece, left = left[:size], left[size:]
        events.append(Delta(len(pieces), (0,), decoder.decode(piece), (-1.0,), (piece,)))
        pieces.append(piece)
    events.append(Finished(len(pieces), "length"))
    for started in (STARTED, msgspec.structs.replace(STARTED, reasoning="think")):
        (choice,) = await whole(asked(sampling=LOGPROBS), [started, *events[1:]])
        reported = choice.logprobs or ()
        assert reported == tuple(TokenLogprob(piece, -1.0) for piece in pieces[: len(reported)])
        if len(reported) < len(pieces):
            # At the length limit, a prefix of a tag is not content, and its tokens are not reported.
            assert started.reasoning
            assert "<think>".startswith(text[text.rindex("<") :])


async def test_calls_are_read_where_the_worker_names_a_format() -> None:
    request = asked(tools=(Tool(name="f"),), stream=True)
    (choice,) = await whole(request, said("Well. ", CALL[:20], CALL[20:], started=HERMES))
    assert (choice.text, choice.reason) == ("Well.", "tool_calls")
    assert [(call.name, json.loads(call.arguments)) for call in choice.calls] == [("f", {"a": 1})]
    chunks = await streamed(request, said(*CALL, started=HERMES))
    opened, *arguments = [call for (call,) in deltas(chunks, "tool_calls")[0]]
    assert (opened["index"], opened["function"]) == (0, {"name": "f", "arguments": ""})
    assert json.loads("".join(piece["function"]["arguments"] for piece in arguments)) == {"a": 1}
    assert reasons(chunks) == {0: "tool_calls"}


def called(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


@pytest.mark.parametrize(
    ("calls", "kept", "complete"),
    [
        ([("f", '{"a": 1}'), ("f", '{"a":1}')], 1, True),
        ([("f", "{}"), ("g", "{}"), ("f", "{}")], 2, True),
        ([("f", '{"a": 1}'), ("f", '{"a": 12}'), ("f", '{"a": 2}'), ("f", '{"a": 12}')], 3, True),
        ([("f", '{"a": "x y"}'), ("f", '{"a": "xy"}'), ("f", '{"a": "x  y"}')], 3, False),
        ([("f", '{"a": "\\" b"}'), ("f", '{"a": "\\" b"}')], 1, True),
        ([("f", '{"a": 1}'), ("g", '{"a": 1}')], 2, False),
    ],
)
async def test_a_repeated_call_ends_the_choice(calls: list[tuple[str, str]], kept: int, complete: bool) -> None:
    request = asked(tools=(Tool(name="f"), Tool(name="g")), tool_choice="required")
    text = "\n".join(called(*call) for call in calls) + "\n"
    expected = [(name, json.loads(arguments)) for name, arguments in calls[:kept]]
    for size in (1, 7, len(text)):
        answer = Answered(())
        parts = [text[at : at + size] for at in range(0, len(text), size)]
        answer.choices[0].fill(said(*parts, started=HERMES)[: -1 if complete else None])
        (choice,) = await collect(answer, request)
        assert [(call.name, json.loads(call.arguments)) for call in choice.calls] == expected
        assert (choice.text, choice.reason) == ("", "tool_calls")
        assert answer.cancelled == ["job0"] * complete


def test_arguments_are_held_back_only_while_they_are_those_of_an_earlier_call() -> None:
    calls = CallFilter(None)
    first: list[Part] = [CallOpened(0, "1", "f"), CallArguments(0, '{"a": "same"}'), CallClosed(0)]
    assert list(calls.filter(first)) == first
    held: list[Part] = [CallOpened(1, "2", "f"), CallArguments(1, '{"a": "sa')]
    assert list(calls.filter(held)) == []
    rest: list[Part] = [CallArguments(1, "n"), CallArguments(1, 'e"}'), CallClosed(1)]
    assert [list(calls.filter([part])) for part in rest] == [[*held, rest[0]], [rest[1]], [rest[2]]]


CUT = CALL[: CALL.index("1")]
NUMBERED = [called("f", f'{{"a": {number}}}') for number in range(3)]


@pytest.mark.parametrize(
    ("fields", "texts", "reason", "text", "calls", "ending"),
    [
        ({}, [CALL, CUT], "length", "", ['{"a": 1}', '{"a": '], "length"),
        ({}, [CALL, CUT], "stop", "", ['{"a": 1}', '{"a": '], "cut"),
        ({}, [CUT], "length", "", ['{"a": '], "length"),
        ({"max_tool_calls": 2}, NUMBERED, "stop", "", ['{"a": 0}', '{"a": 1}'], "tool_calls"),
        ({"tool_choice": "none"}, [CALL], "stop", CALL, [], "stop"),
        ({"messages": (), "prompts": ("x",)}, [f"<think>{CALL}"], "stop", f"<think>{CALL}", [], "stop"),
    ],
    ids=["incomplete repetition, cut", "incomplete repetition", "incomplete", "maximum", "none allowed", "completion"],
)
async def test_which_calls_are_kept(
    fields: dict[str, Any], texts: list[str], reason: FinishReason, text: str, calls: list[str], ending: str
) -> None:
    started = msgspec.structs.replace(HERMES, reasoning="think")
    (choice,) = await whole(asked(tools=(Tool(name="f"),), **fields), said(*texts, reason=reason, started=started))
    assert (choice.text, [call.arguments for call in choice.calls], choice.reason) == (text, calls, ending)


@pytest.mark.parametrize("fields", [{"named_tool": "f", "tool_choice": "required"}, {"parallel_tool_calls": False}])
@pytest.mark.parametrize("streams", [False, True])
async def test_a_second_call_ends_the_choice_and_cancels_its_job(fields: dict[str, Any], streams: bool) -> None:
    request = asked(tools=(Tool(name="f"),), n=2, **fields)
    answer = Answered((), ())
    answer.choices[1].fill(said(CALL, started=HERMES))
    # The job of the first choice never ends by itself.
    answer.choices[0].fill(said(CALL, CALL[:40], CALL[40:] + "and so on", started=HERMES)[:-1])
    if streams:
        rendering = ChatResponseEncoder(request, response_id="0", created=0, fingerprint="fp")
        text = (await sent(answer, request, rendering)).decode()
        assert text.endswith("data: [DONE]\n\n")
        assert "and so on" not in text
        chunks = [json.loads(event.removeprefix("data: ")) for event in text.split("\n\n")[:-2]]
        assert reasons(chunks) == {0: "tool_calls", 1: "tool_calls"}
        assert [len(deltas(chunks, "tool_calls")[choice]) for choice in (0, 1)] == [2, 2]
    else:
        choices = await collect(answer, request)
        assert [(len(choice.calls), choice.text, choice.reason) for choice in choices] == [(1, "", "tool_calls")] * 2
    assert answer.cancelled == ["job0"]


@pytest.mark.parametrize("tail", ["<tool_", '<tool_call>\n{"name": "', '<tool_call>\n{"name": "f", "argu'])
async def test_a_call_that_is_cut_off_is_no_content(tail: str) -> None:
    request = asked(tools=(Tool(name="f"),), sampling=LOGPROBS)
    events = said("Well. ", "\n", tail, reason="length", started=HERMES)
    (choice,) = await whole(request, events)
    assert (choice.text, choice.calls, choice.reason) == ("Well.", (), "length")
    assert [token.piece for token in choice.logprobs or ()] == [b"Well. "]


async def test_reasoning_is_separated_and_counted() -> None:
    tally = UsageRecorder()
    started = Started(worker="w", prompt_tokens=5, fingerprint="fp", reasoning="think", in_reasoning=True)
    (choice,) = await whole(asked(), said("Hm", "m.", "</think>", "Hi", started=started), tally=tally)
    assert (choice.reasoning, choice.text) == ("Hmm.", "Hi")
    assert tally.usage().reasoning_tokens == 2
    chunks = await streamed(asked(), said("Hm", "m.", "</think>", "Hi", started=started))
    assert "".join(deltas(chunks, "reasoning_content")[0]) == "Hmm."


async def test_the_likeliest_are_chosen() -> None:
    request = asked(best_of=3, n=2)
    jobs = [said("bad", logprob=-3.0), said("good", logprob=-0.1), said("fair", "er", logprob=-1.0)]
    choices = await whole(request, *jobs)
    assert choices == [
        Choice(index=0, text="good", reason="stop"),
        Choice(index=1, text="fairer", reason="stop"),
    ]
    chunks = await streamed(asked(best_of=3, n=2, stream=True), *jobs)
    assert deltas(chunks, "content") == {0: ["good"], 1: ["fairer"]}


async def test_the_likeliest_of_each_prompt() -> None:
    request = asked(messages=(), prompts=("x", "y"), best_of=2, sampling=LOGPROBS)
    jobs = [said("a", logprob=-2.0), said("b", logprob=-1.0), said("c", logprob=-1.0), said("d", logprob=-2.0)]
    choices = await whole(request, *jobs)
    assert [(choice.index, choice.text) for choice in choices] == [(0, "b"), (1, "c")]
    assert all(choice.logprobs for choice in choices)


async def test_a_beam_search_brings_all_choices_of_one_job() -> None:
    request = asked(n=2, best_of=4, sampling=Sampling(beams=4))
    items = tuple(Alternative((1, 2), text, "length", -0.5) for text in ("first", "second"))
    tally = UsageRecorder()
    choices = await whole(request, [STARTED, Alternatives(items)], tally=tally)
    assert [(choice.index, choice.text, choice.reason) for choice in choices] == [
        (0, "first", "length"),
        (1, "second", "length"),
    ]
    assert tally.usage().completion_tokens == 4
    chunks = await streamed(request, [STARTED, Alternatives(items)])
    assert deltas(chunks, "content") == {0: ["first"], 1: ["second"]}


@pytest.mark.parametrize("last", [Failed(LOST), Rejected(LOST)])
@pytest.mark.parametrize("fields", [{"n": 2}, {"best_of": 2}])
async def test_the_failure_of_one_choice_is_that_of_all(last: Event, fields: dict[str, int]) -> None:
    jobs: list[list[Event]] = [
        said("a", "b"),
        [STARTED, Delta(0, (1,), "c"), last] if isinstance(last, Failed) else [last],
    ]
    tally = UsageRecorder()
    with pytest.raises(RequestRefused) as refused:
        await whole(asked(**fields), *jobs, tally=tally)
    assert refused.value.problem is LOST
    assert tally.outcome == "answer_lost"
    chunks = await streamed(asked(stream=True, **fields), *jobs)
    assert chunks[-1]["error"]["message"] == "It was lost."


async def test_the_whole_is_handed_over_before_the_end_is_sent() -> None:
    seen: list[Any] = []

    async def keep(choices: list[Choice]) -> None:
        seen.append([choice.text for choice in choices])

    request = asked(stream=True, n=2)
    rendering = ChatResponseEncoder(request, response_id="0", created=0, fingerprint="fp")
    pieces = stream(Answered(said("a", "b"), said("c")), request, rendering, UsageRecorder(), keep)
    seen += [piece.endswith(rendering.done) async for piece in pieces]
    assert seen == [["ab", "c"], True]


@pytest.mark.parametrize(
    ("fields", "param"),
    [({"n": 5}, "n"), ({"best_of": 5}, "n"), ({"prompts": ("a", "b", "c"), "n": 2}, "prompt")],
)
def test_a_request_for_too_many_texts_is_refused(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        check_size(asked(**fields), 4)
    assert refused.value.problem.param == param
    check_size(asked(**fields), 6)


PROMPT = PromptLogprobs((1, b"a"), (RankedToken(2, b"b", -0.5, 1),), ((),))


async def test_each_choice_has_the_log_probabilities_of_its_prompt() -> None:
    started, *rest = said("x")
    choices = await collect(Answered([started, PROMPT, *rest], said("y")), asked(prompts=("ab", "c")))
    assert [choice.prompt for choice in choices] == [PROMPT, None]


async def test_the_log_probabilities_of_a_prompt_come_once_after_a_migration() -> None:
    """The second attempt may compute them again, if the first died before its next event."""
    answer = Answered(())
    (choice,) = answer.choices
    for attempt, event in ((1, STARTED), (1, PROMPT), (2, STARTED), (2, PROMPT), (2, Finished(0, "length"))):
        assert choice.push(attempt, event)
    assert [event async for batch in answer.batches() for _, event in batch] == [
        STARTED,
        PROMPT,
        Finished(0, "length"),
    ]


async def test_the_most_likely_tokens_survive_a_slow_consumer() -> None:
    """Many waiting deltas are merged into one."""
    answer = Answered(())
    (choice,) = answer.choices
    choice.push(1, STARTED)
    for at in range(100):
        choice.push(1, Delta(at, (at,), "x", (-0.5,), (b"x",), ((TopToken(b"x", -0.5), TopToken(b"y", -float(at))),)))
    choice.push(1, Finished(100, "stop"))
    (found,) = await collect(answer, asked(sampling=Sampling(logprobs=True, top_logprobs=2)))
    assert found.logprobs is not None
    assert [token.top[1].logprob for token in found.logprobs] == [-float(at) for at in range(100)]
