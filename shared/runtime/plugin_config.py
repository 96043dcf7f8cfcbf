"""The setting ``plugin_config``: properties of an OpenVINO device as JSON."""

import msgspec

PluginValue = bool | int | float | str
"""Value of an OpenVINO device property."""

_decoder = msgspec.json.Decoder(dict[str, PluginValue])


def parse_plugin_config(text: str) -> dict[str, PluginValue]:
    """Return the properties in ``text``; empty text has none. Raises :class:`ValueError` for anything else."""
    try:
        return _decoder.decode(text or "{}")
    except (msgspec.DecodeError, UnicodeEncodeError):
        raise ValueError("not a JSON object of texts, numbers and booleans") from None
