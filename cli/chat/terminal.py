"""The command: reads messages from the terminal and writes responses to it."""

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path

import click

from cli.base.api_client import ApiClient, api_options
from cli.base.output import echo
from cli.chat.conversation import ChatHistory
from shared.runtime.logs import escaped

_QUOTES = '"""'
_HELP = '''\
  /image FILE    send an image with the next message
  /system TEXT   change the system message
  /max-tokens N  change the maximum number of tokens of a response
  /clear         start a new conversation
  /exit          leave (or Ctrl-D)
  """            begin and end a message of several lines
Ctrl-C stops a response.'''


@click.command()
@click.argument("message", required=False)
@click.option("--model", default="", help="Model to chat with; default: the first one that is served.")
@click.option("--system", default="", help="System message.")
@click.option(
    "--image",
    "images",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Image to send with the first message; can be repeated.",
)
@click.option("--temperature", type=float, help="Sampling temperature; default: the model's own.")
@click.option(
    "--max-tokens",
    type=click.IntRange(min=1),
    default=1024,
    show_default=True,
    help="Maximum number of tokens of a response.",
)
@click.option("--seed", type=int, help="Seed of the sampling.")
@api_options
def chat(
    message: str | None,
    model: str,
    system: str,
    images: tuple[Path, ...],
    temperature: float | None,
    max_tokens: int,
    seed: int | None,
    url: str,
    api_key: str,
) -> None:
    """Chat with a model in the terminal.

    With MESSAGE, or if the input is not a terminal, print one response and exit.

    \b
    vinoqueue chat
    vinoqueue chat "Why is the sky blue?"
    vinoqueue chat --image photo.jpg < question.txt
    """
    api = ApiClient(url, api_key)
    served = _served_models(api)
    if model and model not in served:
        known = ", ".join(served)
        raise click.ClickException(escaped(f"The model '{model}' is not served. Served models: {known}."))
    fields = {"temperature": temperature, "seed": seed}
    conversation = ChatHistory(
        api,
        model or served[0],
        {name: value for name, value in fields.items() if value is not None},
        max_tokens=max_tokens,
        system=system,
    )
    if message is None and sys.stdin.isatty():
        _converse(conversation, images)
    else:
        _write(conversation, message if message is not None else sys.stdin.read(), images)


def _served_models(api: ApiClient) -> list[str]:
    models = [str(one["id"]) for one in api.json("GET", "/v1/models")["data"]]
    if not models:
        raise click.ClickException("No model is served at the moment. Start a worker: vinoqueue worker")
    return models


def _converse(conversation: ChatHistory, images: Sequence[Path]) -> None:
    """Respond to messages until the input ends."""
    with suppress(ImportError):
        import readline  # noqa: F401 - gives input() line editing and a history
    echo("/help lists the commands.", err=True)
    waiting = list(images)
    while True:
        try:
            message = _read()
        except KeyboardInterrupt:
            echo()
            continue
        except EOFError:
            echo()
            return
        match message.split(maxsplit=1):
            case []:
                continue
            case ["/exit"]:
                return
            case ["/help"]:
                echo(_HELP)
            case ["/clear"]:
                conversation.clear()
            case ["/system", text]:
                conversation.system = text
            case ["/max-tokens", number] if number.strip().isdecimal() and int(number):
                conversation.max_tokens = int(number)
            case ["/image", name]:
                waiting.append(Path(os.path.expanduser(name.strip())))
            case [word, *_] if word.startswith("/"):
                echo(f"There is no command '{word}' like this. /help lists the commands.", err=True)
            case _:
                sent, waiting = waiting, []
                _respond(conversation, message, sent)


def _read() -> str:
    """Read a message, which may have several lines. Raises :class:`EOFError` and :class:`KeyboardInterrupt`."""
    message = input(">>> ")
    if not message.startswith(_QUOTES):
        return message
    message = message.removeprefix(_QUOTES)
    while not message.endswith(_QUOTES):
        message += "\n" + input("... ")
    return message.removesuffix(_QUOTES)


def _respond(conversation: ChatHistory, message: str, images: Sequence[Path]) -> None:
    """Write a response until it ends or is interrupted; write an error if it fails."""
    try:
        _write(conversation, message, images)
    except KeyboardInterrupt:
        echo("\n(stopped)", err=True)
    except click.ClickException as error:
        error.show()


def _write(conversation: ChatHistory, message: str, images: Iterable[Path]) -> None:
    with closing(conversation.ask(message, tuple(images))) as pieces:
        for piece in pieces:
            echo(piece.text, nl=False, dim=piece.kind == "reasoning")
            sys.stdout.flush()
    echo()
    if conversation.cut_off:
        echo(f"(cut off after {conversation.max_tokens} tokens: --max-tokens allows more)", err=True)
