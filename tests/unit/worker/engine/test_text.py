"""Text comes out whole and in time, wherever tokens cut it, and stop strings never leak."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.engine.stops import StopSearch
from worker.engine.text import TextStream, Vocabulary

BYTES = Vocabulary([bytes([byte]) for byte in range(256)])


def run(stream: TextStream, tokens: list[int]) -> list[str]:
    return [*(stream.push(token) for token in tokens), stream.finish()]


@pytest.mark.parametrize("text", ["plain", "naïve", "你好世界", "👩‍👩‍👧 family", "a\u0301 \U0001f600\n\t"])
def test_characters_cut_into_bytes_come_out_whole(text: str) -> None:
    parts = run(TextStream(BYTES), list(text.encode()))
    assert "".join(parts) == text
    assert "\ufffd" not in "".join(parts)


def test_a_digest_names_the_tokens_and_the_template() -> None:
    pieces = [b"a", b"b", b"ab"]
    digest = Vocabulary(pieces, {2}).digest("template")
    assert digest == Vocabulary(pieces, {2}).digest("template")
    others = (Vocabulary([b"b", b"a", b"ab"], {2}), Vocabulary(pieces, {1}), Vocabulary([b"a", b"ba", b"b"], {2}))
    assert digest not in {other.digest("template") for other in others}
    assert digest != Vocabulary(pieces, {2}).digest("another")


def test_a_character_comes_with_its_last_byte() -> None:
    assert run(TextStream(BYTES), list("é中".encode())) == ["", "é", "", "", "中", ""]


DROPPING = Vocabulary([bytes([byte]) for byte in range(256)], replaces_invalid=False)


@pytest.mark.parametrize(
    ("data", "replaced", "dropped"),
    [
        ("中".encode()[:2], ["", "", "\ufffd"], ""),
        ("中".encode()[:2] + b"x", ["", "", "\ufffdx", ""], "x"),
        (b"\xffx\x80", ["\ufffd", "x", "\ufffd", ""], "x"),
        (b"\xc3\xc3\xa9", ["", "\ufffd", "é", ""], "é"),
        (b"\xe0\x80\x80", ["", "", 3 * "\ufffd", ""], ""),
        (b"\xed\xa0\x80", ["", "", 3 * "\ufffd", ""], 3 * "\ufffd"),
        (b"\xf4\x90\x80\x80", ["", "", "", 4 * "\ufffd", ""], 4 * "\ufffd"),
    ],
)
def test_invalid_bytes_are_replaced_or_dropped(data: bytes, replaced: list[str], dropped: str) -> None:
    assert run(TextStream(BYTES), list(data)) == replaced
    assert "".join(run(TextStream(DROPPING), list(data))) == dropped


def test_replaced_bytes_may_be_a_stop_string() -> None:
    for tail, stop in ((b"\xffc", "\ufffd"), (b"\xc3", "b\ufffd")):
        stream = TextStream(BYTES, stops=StopSearch((stop,)))
        assert "".join(run(stream, list(b"ab" + tail))) == "ab\ufffd".removesuffix(stop)
        assert stream.stop == stop


def test_a_token_may_hold_whole_characters_and_the_beginning_of_another() -> None:
    emoji = "😀".encode()
    vocabulary = Vocabulary([b"hi " + emoji[:2], emoji[2:] + b"!", b" there"])
    assert run(TextStream(vocabulary), [0, 1, 2]) == ["hi ", "😀!", " there", ""]


def test_special_tokens_are_left_out_even_inside_a_character() -> None:
    emoji = "😀".encode()
    vocabulary = Vocabulary([emoji[:1], emoji[1:], b"<|im_end|>"], special=[2])
    assert "".join(run(TextStream(vocabulary), [2, 0, 2, 1, 2])) == "😀"


def test_special_tokens_are_kept_when_asked_for() -> None:
    vocabulary = Vocabulary([b"hi", b"<|im_end|>"], special=[1])
    assert "".join(run(TextStream(vocabulary, skip_special_tokens=False), [0, 1])) == "hi<|im_end|>"


def test_ids_beyond_the_vocabulary_have_no_text() -> None:
    assert "".join(run(TextStream(Vocabulary([b"a"])), [0, 7, -1, 0])) == "aa"


def test_one_space_is_dropped_at_the_start_for_sentencepiece() -> None:
    vocabulary = Vocabulary([b"<s>", b" The", b" end"], special=[0], strips_first_space=True)
    assert run(TextStream(vocabulary), [0, 1, 2]) == ["", "The", " end", ""]


def test_a_stop_string_across_tokens_is_cut_off_and_ends_the_text() -> None:
    vocabulary = Vocabulary([b"one ", b"tw", b"o th", b"ree"])
    stream = TextStream(vocabulary, stops=StopSearch(("two",)))
    assert [stream.push(token) for token in (0, 1, 2)] == ["one ", "", ""]
    assert stream.stop == "two"
    assert stream.push(3) == ""
    assert stream.finish() == ""


def test_a_stop_string_inside_one_token_is_cut_off() -> None:
    stream = TextStream(Vocabulary([b" cunning"]), stops=StopSearch(("unn",)))
    assert stream.push(0) == " c"
    assert stream.stop == "unn"


def test_the_stop_string_is_kept_when_asked_for_and_what_follows_it_is_not() -> None:
    stream = TextStream(Vocabulary([b"a st", b"op here"]), stops=StopSearch(("stop",), include=True))
    assert "".join(run(stream, [0, 1])) == "a stop"


def test_only_what_may_become_a_stop_string_is_held_back() -> None:
    stream = TextStream(BYTES, stops=StopSearch(("\n\nUser:",)))
    assert [stream.push(ord(character)) for character in "a\nb\n\nUx"] == ["a", "", "\nb", "", "", "", "\n\nUx"]


def test_what_was_held_back_comes_at_the_end() -> None:
    assert run(TextStream(BYTES, stops=StopSearch(("END",))), list(b"the EN")) == ["t", "h", "e", " ", "", "", "EN"]


def test_repeated_beginnings_of_a_stop_string_are_seen() -> None:
    stream = TextStream(BYTES, stops=StopSearch(("aab",)))
    assert "".join(run(stream, list(b"aaaab!"))) == "aa"


@pytest.mark.parametrize(
    ("stops", "expected", "stop"),
    [
        (("b", "abc"), "xa", "b"),
        (("abc", "b"), "xa", "b"),
        (("c", "bc"), "xa", "bc"),
        (("", "d"), "xabc", "d"),
        (("zz",), "xabcde", ""),
    ],
)
def test_of_several_stop_strings_the_first_to_end_counts(stops: tuple[str, ...], expected: str, stop: str) -> None:
    stream = TextStream(BYTES, stops=StopSearch(stops))
    assert "".join(run(stream, list(b"xabcde"))) == expected
    assert stream.stop == stop


def reference(text: str, stops: list[str], include_stop: bool) -> str:
    """The shortest beginning of ``text`` that ends with a stop string, without it; or all of ``text``."""
    for end in range(len(text) + 1):
        found = [stop for stop in stops if stop and text[:end].endswith(stop)]
        if found:
            return text[:end] if include_stop else text[: end - len(max(found, key=len))]
    return text


ALPHABET = st.text(alphabet="ab\né中😀", max_size=30)


@given(
    text=ALPHABET,
    stops=st.lists(st.text(alphabet="ab\né中😀", max_size=5), max_size=4),
    cuts=st.lists(st.integers(1, 5), min_size=1),
    include_stop=st.booleans(),
)
def test_any_cut_gives_the_same_text(text: str, stops: list[str], cuts: list[int], include_stop: bool) -> None:
    data = text.encode()
    pieces: list[bytes] = []
    while data:
        length = cuts[len(pieces) % len(cuts)]
        pieces.append(data[:length])
        data = data[length:]
    stream = TextStream(Vocabulary(pieces), stops=StopSearch(stops, include=include_stop))
    shown = ""
    expected = reference(text, stops, include_stop)
    for token in range(len(pieces)):
        shown += stream.push(token)
        assert expected.startswith(shown)
    assert shown + stream.finish() == expected


@given(
    text=st.text(alphabet="ab", min_size=20, max_size=200),
    stops=st.lists(st.text(alphabet="ab", min_size=4, max_size=30), min_size=1, max_size=4),
    cut=st.integers(1, 7),
    include_stop=st.booleans(),
)
def test_periodic_texts_and_stop_strings(text: str, stops: list[str], cut: int, include_stop: bool) -> None:
    pieces = [text[at : at + cut].encode() for at in range(0, len(text), cut)]
    stream = TextStream(Vocabulary(pieces), stops=StopSearch(stops, include=include_stop))
    expected = reference(text, stops, include_stop)
    shown = ""
    for token in range(len(pieces)):
        shown += stream.push(token)
        assert expected.startswith(shown)
        if not stream.stop:
            so_far = text[: (token + 1) * cut]
            begun = (length for stop in stops for length in range(1, len(stop)) if so_far.endswith(stop[:length]))
            assert len(so_far) - len(shown) == max(begun, default=0), "no more is held back than must be"
    assert shown + stream.finish() == expected


def test_a_first_space_that_a_grammar_asks_for_is_kept() -> None:
    vocabulary = Vocabulary([b" a"], strips_first_space=True)
    assert "".join(run(TextStream(vocabulary), [0, 0])) == "a a"
    assert "".join(run(TextStream(vocabulary, keep_first_space=True), [0, 0])) == " a a"
