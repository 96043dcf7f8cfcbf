"""The version of this installation, which pyproject.toml reads from here."""

VERSION = "0.1.0"
