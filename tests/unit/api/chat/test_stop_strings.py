"""Stop strings end content only: in every format of tool calls and reasoning, in every dialect, streamed or not, and
wherever the text is cut into tokens or moves to another worker. A call that is cut is never reported as whole.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.dialects.base.interface import Dialect
from shared.parsers import markup_of
from shared.parsers.formats import TOOL_FORMATS
from shared.protocol.events import Delta, Event, Finished, Started
from shared.protocol.request import ChatRequest, Message, Sampling, formed
from tests.support.answers import Answered, UsageRecorder, collect, sent, stream
from tests.support.dialects import CHATS
from tests.support.dialects import DIALECTS as TRIED
from tests.unit.shared.parsers.reading import read
from tests.unit.shared.parsers.transcript import TOOLS, TRANSCRIPTS, Transcript
from worker.engine.generation import Generation
from worker.engine.protocol import EngineSequence
from worker.engine.text import Vocabulary

DIALECTS = [tried.make() for tried in CHATS]
WHOLE = ("tool_calls", "tool_use", "completed", "stop")
"""The words that say that an answer with calls is whole."""


@dataclass
class Answer:
    """What a client sees of an answer. ``calls`` are names and texts of arguments."""

    content: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    reason: str = ""


def generated(
    transcript: Transcript,
    pieces: Sequence[str],
    sampling: Sampling,
    *,
    moves_at: int = 0,
    ends_at: int | None = None,
    **fields: Any,
) -> tuple[ChatRequest, list[Event]]:
    """The request, and the events of workers whose model writes ``pieces``, each a token.

    The second worker continues after ``moves_at`` tokens. At ``ends_at``, the model writes its end token.
    """
    request = ChatRequest(
        model="m",
        sampling=sampling,
        tools=TOOLS if transcript.tools else (),
        **{"messages": (Message(role="user", content="Hi"),)} | fields,
    )
    started = Started(
        worker="w",
        prompt_tokens=5,
        fingerprint="fp",
        tools=transcript.tools or "",
        reasoning=transcript.reasoning or "",
        in_reasoning=transcript.in_reasoning,
    )
    vocabulary = Vocabulary([piece.encode() for piece in pieces] + [b"<end>"])
    events: list[Event] = [started]
    last = len(pieces) if ends_at is None else ends_at
    tokens = (*range(last), len(pieces))
    sequence = EngineSequence(number=1, prompt=(1,), sampling=sampling, markup=markup_of(request, started))
    for begin, end in ((0, moves_at), (moves_at, len(tokens))):
        # As the engine's process gets it.
        encoded = msgspec.msgpack.encode(msgspec.structs.replace(sequence, generated=tokens[:begin]))
        generation = Generation(
            msgspec.msgpack.decode(encoded, type=EngineSequence),
            vocabulary,
            end_tokens=(len(pieces),),
            limit=sampling.max_tokens or 1000,
        )
        for token in tokens[begin:end]:
            output = generation.append((token,), ())
            if output.delta is not None:
                events.append(output.delta)
            if output.reason is not None:
                assert output.reason != "exhausted"
                events.append(Finished(output.end, output.reason, 0, output.ending.stop if output.ending else ""))
                return request, events
    raise AssertionError("the text has no end")


def text_of(events: Sequence[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Delta))


async def answer_of(dialect: Dialect, request: ChatRequest, events: Sequence[Event], *, streamed: bool) -> Answer:
    response = Answered(events)
    request = formed(request, stream=streamed)
    encoder = dialect.render(request, response_id="1", created=0, fingerprint="fp")
    recorder = UsageRecorder()
    if streamed:
        text = (await sent(response, request, encoder, recorder)).decode()
        data = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith(("data: {", "{"))]
        return joined([json.loads(text) for text in data])
    choices = await collect(response, request, recorder)
    return seen(json.loads(encoder.completion(choices, recorder.usage())))


def seen(body: Mapping[str, Any]) -> Answer:
    """What a whole answer says."""
    answer = Answer()
    if "choices" in body:
        (choice,) = body["choices"]
        message = choice["message"]
        answer.content, answer.reasoning = message["content"] or "", message.get("reasoning_content", "")
        answer.calls = [
            (call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", ())
        ]
        answer.reason = choice["finish_reason"]
    elif "output" in body:
        for item in body["output"]:
            match item["type"]:
                case "message":
                    answer.content += item["content"][0]["text"]
                case "reasoning":
                    answer.reasoning += item["content"][0]["text"]
                case "function_call":
                    answer.calls.append((item["name"], item["arguments"]))
                    assert item["status"] == "incomplete" or isinstance(json.loads(item["arguments"]), dict)
        answer.reason = body["status"]
    elif "message" in body:
        message = body["message"]
        answer.content, answer.reasoning = message["content"], message.get("thinking", "")
        functions = [call["function"] for call in message.get("tool_calls", ())]
        answer.calls = [(function["name"], json.dumps(function["arguments"])) for function in functions]
        answer.reason = body.get("done_reason", "")
    else:
        for block in body["content"]:
            match block["type"]:
                case "text":
                    answer.content += block["text"]
                case "thinking":
                    answer.reasoning += block["thinking"]
                case "tool_use":
                    answer.calls.append((block["name"], json.dumps(block["input"])))
        answer.reason = body["stop_reason"]
    return answer


def joined(events: Sequence[Mapping[str, Any]]) -> Answer:
    """What the events of a stream say."""
    if "response" in events[-1]:
        return seen(events[-1]["response"])
    answer = Answer()
    for event in events:
        match event:
            case {"message": {"content": _}, "done": _}:
                line = seen(event)
                answer.content += line.content
                answer.reasoning += line.reasoning
                answer.calls += line.calls
                answer.reason = line.reason
            case {"choices": [{"delta": delta, "finish_reason": reason}]}:
                answer.content += delta.get("content") or ""
                answer.reasoning += delta.get("reasoning_content") or ""
                for call in delta.get("tool_calls", ()):
                    add_call(answer, call["function"].get("name"), call["function"]["arguments"])
                answer.reason = reason or answer.reason
            case {"type": "content_block_start", "content_block": {"type": "tool_use", "name": name}}:
                add_call(answer, name, "")
            case {"type": "content_block_delta", "delta": delta}:
                answer.content += delta.get("text", "")
                answer.reasoning += delta.get("thinking", "")
                if "partial_json" in delta:
                    add_call(answer, None, delta["partial_json"])
            case {"type": "message_delta", "delta": delta}:
                answer.reason = delta["stop_reason"]
    return answer


def add_call(answer: Answer, name: str | None, arguments: str) -> None:
    if name is not None:
        answer.calls.append((name, ""))
    answer.calls[-1] = (answer.calls[-1][0], answer.calls[-1][1] + arguments)


def blocks_of(transcript: Transcript) -> Iterator[tuple[int, str]]:
    """Each uninterrupted piece of content, with its place in the text."""
    parser = transcript.parser()
    parser.feed(transcript.text)
    spans = [*parser.spans]
    parser.finish()
    block, block_end = "", 0
    for end, text in [*spans, *parser.spans]:
        if block and end - len(text) != block_end:
            yield block_end - len(block), block
            block = ""
        block, block_end = block + text, end
    if block:
        yield block_end - len(block), block


def right_text(transcript: Transcript, stops: Sequence[str]) -> tuple[str, str]:
    """The text up to the stop string that ends first in its content, and that stop string."""
    for begin, block in blocks_of(transcript):
        found = [(block.find(stop) + len(stop), -len(stop), stop) for stop in stops if stop in block]
        if found:
            end, length, stop = min(found)
            return transcript.text[: begin + end + length], stop
    return transcript.text, ""


def decoded(calls: Sequence[tuple[str, str]]) -> list[tuple[str, Any]]:
    return [(name, json.loads(arguments)) for name, arguments in calls]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Transcript, list[str], tuple[str, ...], int]:
    """A transcript in tokens, stop strings that occur in it, and where it moves to another worker."""
    transcript = draw(st.sampled_from(TRANSCRIPTS))
    text = transcript.text
    places = sorted(draw(st.sets(st.integers(0, len(text)), max_size=12)))
    pieces = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True) if a < b]
    stops = []
    for _ in range(draw(st.integers(1, 3))):
        begin = draw(st.integers(0, len(text) - 1))
        stops.append(text[begin : begin + draw(st.integers(1, 12))])
    return transcript, pieces, tuple(stops), draw(st.integers(0, len(pieces)))


@given(case=cases(), dialect=st.sampled_from(DIALECTS), streamed=st.booleans())
async def test_no_stop_string_cuts_a_call_or_ends_a_reasoning(
    case: tuple[Transcript, list[str], tuple[str, ...], int], dialect: Dialect, streamed: bool
) -> None:
    transcript, pieces, stops, moves_at = case
    text, stop = right_text(transcript, stops)
    request, events = generated(transcript, pieces, Sampling(stop=stops), moves_at=moves_at)
    assert isinstance(finished := events[-1], Finished)
    assert (finished.stop, finished.reason) == (stop, "stop")
    # The client sees what it would see if the model had ended there itself, with each call whole.
    answer = await answer_of(dialect, request, events, streamed=streamed)
    right = await answer_of(dialect, *generated(transcript, [text], Sampling()), streamed=streamed)
    if stop and right.reason == "end_turn":
        right.reason = "stop_sequence"
    assert answer == right
    assert decoded(answer.calls) == list(transcript.calls[: len(answer.calls)])
    assert not answer.calls or answer.reason in WHOLE


CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'


@pytest.mark.parametrize(
    ("sampling", "fields"),
    [
        (Sampling(stop=("Pa",)), {"messages": (), "prompts": ("x",)}),
        (Sampling(stop=("Pa",), skip_special_tokens=False), {}),
    ],
)
def test_in_text_that_is_not_parsed_they_match_anywhere(sampling: Sampling, fields: dict[str, Any]) -> None:
    transcript = Transcript(name="", text=CALL, tools="hermes", reasoning="think")
    _, events = generated(transcript, [*CALL], sampling, **fields)
    assert text_of(events) == CALL.partition("Pa")[0]


def test_arguments_of_calls_are_not_held_back() -> None:
    transcript = Transcript(name="", text=CALL, tools="hermes")
    _, events = generated(transcript, [*CALL], Sampling(stop=("Paris",)))
    texts = [event.text for event in events if isinstance(event, Delta)]
    begin, end = CALL.index('{"city'), CALL.index("\n</")
    assert texts[begin + 1 : end] == [*CALL[begin + 1 : end]]


@given(
    case=cases(),
    dialect=st.sampled_from(DIALECTS),
    streamed=st.booleans(),
    by=st.sampled_from(["end token", "stop token", "max_tokens"]),
)
async def test_a_call_that_is_cut_is_not_reported_as_whole(
    case: tuple[Transcript, list[str], tuple[str, ...], int], dialect: Dialect, streamed: bool, by: str
) -> None:
    transcript, pieces, _, cut_at = case
    sampling = Sampling()
    if by == "stop token" and cut_at < len(pieces):
        sampling = Sampling(stop_token_ids=(cut_at,))
    elif by == "max_tokens":
        sampling = Sampling(max_tokens=max(1, cut_at))
    request, events = generated(transcript, pieces, sampling, ends_at=cut_at if by == "end token" else None)
    answer = await answer_of(dialect, request, events, streamed=streamed)
    if answer.reason in WHOLE:
        assert decoded(answer.calls) == list(transcript.calls[: len(answer.calls)])


MARKED = [
    (transcript, trigger)
    for transcript in TRANSCRIPTS
    if transcript.tools
    for trigger in TOOL_FORMATS[transcript.tools].triggers
    if transcript.calls and transcript.text.startswith(trigger)
]


@pytest.mark.parametrize(("transcript", "trigger"), MARKED, ids=lambda item: getattr(item, "name", ""))
async def test_an_answer_that_ends_inside_its_first_call_is_incomplete(transcript: Transcript, trigger: str) -> None:
    for end in range(len(trigger), len(transcript.text)):
        text = transcript.text[:end]
        if any(call.closed for call in read(transcript.parser(), [text]).calls):
            break
        dialect = DIALECTS[end % len(DIALECTS)]
        answer = await answer_of(dialect, *generated(transcript, [text], Sampling()), streamed=False)
        assert answer.reason in ("length", "max_tokens", "incomplete"), text


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: type(dialect).__name__)
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_call_that_is_malformed_is_not_reported_as_whole(dialect: Dialect, streamed: bool) -> None:
    text = CALL.replace('"Paris"', '"Paris", 5') + CALL
    transcript = Transcript(name="", text=text, tools="hermes")
    answer = await answer_of(dialect, *generated(transcript, [text], Sampling()), streamed=streamed)
    assert answer.calls[0][0] == "get_weather"
    assert answer.reason in ("length", "max_tokens", "incomplete")


@pytest.mark.parametrize("stop", ["a", "ab", "b", "ca", "d"])
@pytest.mark.parametrize("min_tokens", range(6))
def test_min_tokens_holds_stop_strings_off(stop: str, min_tokens: int) -> None:
    """As in vLLM: one that ends in the first tokens is text, and one that ends later may begin there."""
    pieces = ["a", "b", "c", "ab", "cd"]
    _, events = generated(Transcript(name="", text=""), pieces, Sampling(stop=(stop,), min_tokens=min_tokens))
    text, held_off = "".join(pieces), len("".join(pieces[:min_tokens]))
    ends = [end for end in range(held_off + 1, len(text) + 1) if text[:end].endswith(stop)]
    right = text[: ends[0] - len(stop)] if ends else text
    assert text_of(events) == right
    assert isinstance(finished := events[-1], Finished)
    assert finished.stop == (stop if ends else "")


async def test_a_stream_sends_no_empty_piece() -> None:
    """An encoder may return nothing, such as Ollama's for a start: an empty chunk would end the response."""
    request, (started, *others) = generated(Transcript(name="", text=""), ["a"], Sampling())
    encoder = TRIED["ollama_chat"].make().render(request, response_id="1", created=0, fingerprint="fp")
    response = Answered(())
    response.add(started)
    pieces = stream(response, request, encoder, UsageRecorder())
    first = asyncio.ensure_future(anext(pieces))
    await asyncio.sleep(0.01)
    for event in others:
        response.add(event, last=isinstance(event, Finished))
    assert all([await first, *[piece async for piece in pieces]])
