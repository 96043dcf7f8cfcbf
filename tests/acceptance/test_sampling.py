"""Choosing tokens on the real model: seeds among strangers, several choices in a stream, beams, echoes and limits.

Log probabilities depend on the batch in their last digits (some 1e-6), and requests join a batch when they happen to
arrive. A token that is drawn from the whole vocabulary can come out different for that; one of a few likely tokens does
not. So texts that are compared across batches are drawn with a small ``top_p``.
"""

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.acceptance.conftest import MODEL
from tests.support.fleet import Fleet

STORY: list[Any] = [{"role": "user", "content": "Tell me a story."}]
FRANCE: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]


def ask(fleet: Fleet, version: str = "v1", **fields: Any) -> Any:
    own = {name: fields.pop(name) for name in list(fields) if name in ("best_of", "ignore_eos", "length_penalty")}
    own |= {"include_stop_str_in_output": fields.pop("include_stop")} if "include_stop" in fields else {}
    with fleet.client(version) as opened:
        made = {"model": MODEL, "messages": STORY, "max_tokens": 24, **fields}
        answer = opened.chat.completions.create(**made, extra_body=own)
        return list(answer) if fields.get("stream") else answer


def test_a_seed_makes_the_same_text_among_strangers(real_fleet: Fleet) -> None:
    def text(seed: int) -> str:
        content: str = ask(real_fleet, seed=seed, temperature=1.3, top_p=0.5).choices[0].message.content
        return content

    def stranger(number: int) -> str:
        messages = [{"role": "user", "content": f"Count from {number}. " * (number + 1)}]
        content: str = ask(real_fleet, messages=messages, temperature=1.0).choices[0].message.content
        return content

    alone = text(11)
    with ThreadPoolExecutor(12) as pool:
        strangers = pool.map(stranger, range(8))
        beside = list(pool.map(text, [11] * 4))
        assert len(set(strangers)) > 1
    assert set(beside) == {alone}
    assert text(12) != alone


def test_choices_stream_side_by_side_with_texts_of_their_own(real_fleet: Fleet) -> None:
    fields: dict[str, Any] = {"n": 3, "seed": 11, "temperature": 1.3, "top_p": 0.5, "logprobs": True}
    whole = ask(real_fleet, **fields)
    texts: dict[int, str] = defaultdict(str)
    tokens: dict[int, bytes] = defaultdict(bytes)
    usage: Any = None
    for chunk in ask(real_fleet, **fields, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            listed = choice.logprobs.content if choice.logprobs else []
            tokens[choice.index] += b"".join(bytes(token.bytes) for token in listed)
    assert texts == {choice.index: choice.message.content for choice in whole.choices}
    assert {index: raw.decode() for index, raw in tokens.items()} == texts
    assert len(set(texts.values())) == 3
    alone = ask(real_fleet, **fields | {"n": 1}).usage
    assert usage.prompt_tokens == whole.usage.prompt_tokens == alone.prompt_tokens
    assert usage.completion_tokens == whole.usage.completion_tokens


def test_a_beam_search_whole_and_streamed(real_fleet: Fleet) -> None:
    fields: dict[str, Any] = {"messages": FRANCE, "best_of": 3, "n": 2, "temperature": 0, "include_stop": True}
    whole = ask(real_fleet, "v3", **fields)
    texts = {choice.index: choice.message.content for choice in whole.choices}
    assert sorted(texts) == [0, 1]
    assert texts[0] != texts[1]
    assert "Paris" in texts[0]
    streamed: dict[int, str] = defaultdict(str)
    for chunk in ask(real_fleet, "v3", **fields, stream=True):
        for choice in chunk.choices:
            streamed[choice.index] += choice.delta.content or ""
    assert streamed == texts


def test_a_length_penalty_above_zero_makes_beams_longer(real_fleet: Fleet) -> None:
    def tokens(length_penalty: float) -> int:
        answer = ask(real_fleet, "v3", messages=FRANCE, best_of=4, length_penalty=length_penalty, max_tokens=40)
        count: int = answer.usage.completion_tokens
        return count

    assert tokens(0.0) < tokens(5.0)
