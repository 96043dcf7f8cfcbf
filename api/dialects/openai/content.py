"""Content parts of messages."""

from typing import Annotated, Literal

from pydantic import Field, Tag

from api.dialects.openai.fields import (
    ARRAY,
    STRING,
    Items,
    NotNull,
    OptionalText,
    Strict,
    by_key,
    by_type,
    tag,
)


class CacheBreakpoint(Strict):
    """A hint where a cached prefix should end."""

    mode: Literal["explicit"]
    ttl: Annotated[Literal["30m", "12h"] | None, NotNull("a string")] = None


OptionalBreakpoint = Annotated[CacheBreakpoint | None, NotNull("an object")]


class TextPart(Strict):
    """Plain text."""

    type: Literal["text"]
    text: str
    prompt_cache_breakpoint: OptionalBreakpoint = None


class RefusalPart(Strict):
    """Text with which the assistant refused."""

    type: Literal["refusal"]
    refusal: str


class ImageURL(Strict):
    """Where an image is, or the image itself as a data URL."""

    url: str
    detail: Annotated[Literal["auto", "low", "high", "original"] | None, NotNull("a string")] = None


class ImagePart(Strict):
    """An image."""

    type: Literal["image_url"]
    image_url: ImageURL
    prompt_cache_breakpoint: OptionalBreakpoint = None


class InputAudio(Strict):
    """A sound in base64."""

    data: str
    format: Literal["wav", "mp3"]


class AudioInputPart(Strict):
    """A sound from the user."""

    type: Literal["input_audio"]
    input_audio: InputAudio
    prompt_cache_breakpoint: OptionalBreakpoint = None


class AudioReference(Strict):
    """An earlier answer in sound, by its id."""

    id: str


class AudioPart(Strict):
    """An earlier answer in sound. The service knows the type, the reference gives it to no message."""

    type: Literal["audio"]
    audio: AudioReference


class FileReference(Strict):
    """A file, by id or in base64."""

    file_data: OptionalText = None
    file_id: OptionalText = None
    filename: OptionalText = None


class FilePart(Strict):
    """A file."""

    type: Literal["file"]
    file: FileReference
    prompt_cache_breakpoint: OptionalBreakpoint = None


ContentPart = Annotated[
    Annotated[TextPart, Tag(tag("text"))]
    | Annotated[ImagePart, Tag(tag("image_url"))]
    | Annotated[AudioInputPart, Tag(tag("input_audio"))]
    | Annotated[RefusalPart, Tag(tag("refusal"))]
    | Annotated[AudioPart, Tag(tag("audio"))]
    | Annotated[FilePart, Tag(tag("file"))],
    by_key("type", "text", "image_url", "input_audio", "refusal", "audio", "file"),
]
"""Any part. The service checks the form of all types in all messages first, and their fitness for the role after it."""

Content = Annotated[
    Annotated[str, Tag(STRING)] | Annotated[Items[ContentPart], Field(min_length=1), Tag(ARRAY)],
    by_type("one of a string or array of objects", {str: STRING, list: ARRAY}),
]
"""A string, or one or more parts."""

PARTS_BY_ROLE: dict[str, tuple[str, ...]] = {
    "system": ("text",),
    "developer": ("text",),
    "user": ("text", "image_url", "input_audio", "file"),
    "assistant": ("text", "refusal"),
    "tool": ("text",),
}
"""The types of parts that the reference gives to each role; the messages of a function have no parts."""
