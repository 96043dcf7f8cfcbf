"""Schemas of the content parts of messages."""

from typing import Annotated, Any, Literal

from pydantic import Field

from api.dialects.base.fields import ByKey, ByType, History, Items
from api.dialects.base.unsupported import OtherModality

Breakpoint = dict[str, Any] | None
"""The end of a cached prefix. It has no effect: prefixes are always cached."""


class TextPart(History):
    type: Literal["text"]
    text: str
    prompt_cache_breakpoint: Breakpoint = None


class RefusalPart(History):
    type: Literal["refusal"]
    refusal: str


class ImageURL(History):
    url: str
    detail: Literal["auto", "low", "high", "original"] | None = None


class ImagePart(History):
    type: Literal["image_url"]
    image_url: ImageURL
    prompt_cache_breakpoint: Breakpoint = None


class AudioInputPart(History):
    type: Annotated[Literal["input_audio"], OtherModality()]
    input_audio: dict[str, Any]
    prompt_cache_breakpoint: Breakpoint = None


class AudioPart(History):
    """Earlier audio output. The OpenAI service accepts the type, but the reference allows it in no message."""

    type: Annotated[Literal["audio"], OtherModality()]
    audio: dict[str, Any]


class FilePart(History):
    type: Annotated[Literal["file"], OtherModality()]
    file: dict[str, Any]
    prompt_cache_breakpoint: Breakpoint = None


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
