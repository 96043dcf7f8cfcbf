"""Schemas of the content parts of messages."""

from typing import Annotated, Literal

from pydantic import Field

from api.dialects.base.fields import (
    Items,
    NotNull,
    OptionalText,
    Strict,
    by,
    by_type,
)
from api.dialects.base.unsupported import CACHED_ALWAYS, OtherModality, Refused


class CacheBreakpoint(Strict):
    """A hint for the end of a cached prefix."""

    mode: Literal["explicit"]
    ttl: Annotated[Literal["30m", "12h"] | None, NotNull("a string")] = None


OptionalBreakpoint = Annotated[CacheBreakpoint | None, NotNull("an object"), Refused(CACHED_ALWAYS)]


class TextPart(Strict):
    """Plain text."""

    type: Literal["text"]
    text: str
    prompt_cache_breakpoint: OptionalBreakpoint = None


class RefusalPart(Strict):
    """A refusal by the assistant."""

    type: Literal["refusal"]
    refusal: str


class ImageURL(Strict):
    """URL of an image, or a data URL with the image."""

    url: str
    detail: Annotated[Literal["auto", "low", "high", "original"] | None, NotNull("a string")] = None


class ImagePart(Strict):
    """An image."""

    type: Literal["image_url"]
    image_url: ImageURL
    prompt_cache_breakpoint: OptionalBreakpoint = None


class InputAudio(Strict):
    """Audio data in base64."""

    data: str
    format: Literal["wav", "mp3"]


class AudioInputPart(Strict):
    """Audio input from the user."""

    type: Annotated[Literal["input_audio"], OtherModality()]
    input_audio: InputAudio
    prompt_cache_breakpoint: OptionalBreakpoint = None


class AudioReference(Strict):
    """Reference to earlier audio output, by id."""

    id: str


class AudioPart(Strict):
    """Earlier audio output. The OpenAI service accepts the type, but the reference allows it in no message."""

    type: Annotated[Literal["audio"], OtherModality()]
    audio: AudioReference


class FileReference(Strict):
    """A file, by id or in base64."""

    file_data: OptionalText = None
    file_id: OptionalText = None
    filename: OptionalText = None


class FilePart(Strict):
    """A file."""

    type: Annotated[Literal["file"], OtherModality()]
    file: FileReference
    prompt_cache_breakpoint: OptionalBreakpoint = None


ContentPart = Annotated[TextPart | ImagePart | AudioInputPart | RefusalPart | AudioPart | FilePart, by("type")]
"""Any part. The OpenAI service first validates all parts of all messages, and then whether their roles allow them."""

Content = Annotated[
    str | Annotated[Items[ContentPart], Field(min_length=1)], by_type("one of a string or array of objects")
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
