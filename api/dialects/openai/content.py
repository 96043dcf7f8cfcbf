"""Schemas of the content parts of messages."""

from typing import Annotated, Any, Literal

from pydantic import Field

from api.dialects.base.fields import (
    ByKey,
    ByType,
    Items,
    NotNull,
    Strict,
)
from api.dialects.base.unsupported import CACHED_ALWAYS, OtherModality, Refused

OptionalBreakpoint = Annotated[dict[str, Any] | None, NotNull("an object"), Refused(CACHED_ALWAYS)]


class TextPart(Strict):
    type: Literal["text"]
    text: str
    prompt_cache_breakpoint: OptionalBreakpoint = None


class RefusalPart(Strict):
    type: Literal["refusal"]
    refusal: str


class ImageURL(Strict):
    url: str
    detail: Annotated[Literal["auto", "low", "high", "original"] | None, NotNull("a string")] = None


class ImagePart(Strict):
    type: Literal["image_url"]
    image_url: ImageURL
    prompt_cache_breakpoint: OptionalBreakpoint = None


class AudioInputPart(Strict):
    type: Annotated[Literal["input_audio"], OtherModality()]
    input_audio: dict[str, Any]
    prompt_cache_breakpoint: OptionalBreakpoint = None


class AudioPart(Strict):
    """Earlier audio output. The OpenAI service accepts the type, but the reference allows it in no message."""

    type: Annotated[Literal["audio"], OtherModality()]
    audio: dict[str, Any]


class FilePart(Strict):
    type: Annotated[Literal["file"], OtherModality()]
    file: dict[str, Any]
    prompt_cache_breakpoint: OptionalBreakpoint = None


ContentPart = Annotated[TextPart | ImagePart | AudioInputPart | RefusalPart | AudioPart | FilePart, ByKey("type")]
"""Any part. The OpenAI service first validates all parts of all messages, and then whether their roles allow them."""

Content = Annotated[
    str | Annotated[Items[ContentPart], Field(min_length=1)], ByType("one of a string or array of objects")
]
"""A string, or a list of one or more parts."""

PARTS_BY_ROLE: dict[str, tuple[str, ...]] = {
    "system": ("text",),
    "developer": ("text",),
    "user": ("text", "image_url", "input_audio", "file"),
    "assistant": ("text", "refusal"),
    "tool": ("text",),
}
"""The part types that the reference allows for each role. Function messages have no parts."""
