"""``vinoqueue chat``: chat with a model in the terminal."""

from cli.chat.terminal import chat

__all__ = ["chat"]
