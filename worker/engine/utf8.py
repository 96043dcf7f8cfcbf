"""Incremental decoding of UTF-8 that may be invalid, with the rules of OpenVINO's detokenizers.

Python's own incremental decoder finds the same characters, but replaces incomplete ones by another number of U+FFFD.
"""

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class Utf8Decoder:
    """Decodes bytes that arrive in parts.

    Invalid are: a byte that can't be in a character's place; a character that is interrupted by another one or by the
    end, as a whole; and each byte of one that is longer than necessary, a surrogate, or beyond U+10FFFF.
    """

    def __init__(self, *, replace: bool) -> None:
        """``replace``: whether U+FFFD takes the place of what is invalid. Otherwise, it is dropped."""
        self._invalid = _REPLACEMENT if replace else ""
        self._character = bytearray()
        self._missing = 0
        """Number of bytes that are missing from the current character."""

    @property
    def inside_character(self) -> bool:
        """Whether the bytes so far end inside a character."""
        return self._missing > 0

    def decode(self, data: bytes) -> str:
        """Append ``data``; return the text that has become certain."""
        text: list[str] = []
        for byte in data:
            if self._missing and byte & 0xC0 == 0x80:
                self._character.append(byte)
                self._missing -= 1
                if not self._missing:
                    text.append(self._complete())
                continue
            text.append(self.finish())
            if byte < 0x80:
                text.append(chr(byte))
            elif 0xC0 <= byte < 0xF8:
                self._character.append(byte)
                self._missing = 1 + (byte >= 0xE0) + (byte >= 0xF0)
            else:
                text.append(self._invalid)
        return "".join(text)

    def finish(self) -> str:
        """Return the text of the current character, which is interrupted; empty if there is none."""
        text = self._invalid if self._missing else ""
        self._character.clear()
        self._missing = 0
        return text

    def _complete(self) -> str:
        data = bytes(self._character)
        self._character.clear()
        try:
            return data.decode()
        except UnicodeDecodeError:
            overlong = data < b"\xc2" or b"\xe0" <= data < b"\xe0\xa0" or b"\xf0" <= data < b"\xf0\x90"
            # Detokenizers keep surrogates and the like as they are; their Python binding replaces them.
            return len(data) * (self._invalid if overlong else _REPLACEMENT)
