"""The command ``bench load``: measures an OpenAI-compatible server under load."""

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import click

from cli.base.api_client import api_options, base_url
from cli.base.output import echo
from cli.base.progress import bar

if TYPE_CHECKING:
    from cli.bench.endpoint import Endpoint, Outcome

_CONCURRENCY = 8
_WORDS = (
    "the of and to in is that for it as was with be by on not he his but at are this have from or had an they "
    "which one you were her all she there would their we him been has when who will more no if out so said what "
    "up its about into than them can only other new some could time these two may then do first any my now such "
    "like our over man me even most made after also did many before must through back years where much your way "
    "well down should because each just"
)
"""Words that most tokenizers have as one token each."""


class _Object(click.ParamType[Any]):
    name = "JSON"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        try:
            found = json.loads(value)
        except ValueError as error:
            self.fail(f"{value!r} is not JSON: {error}", param, ctx)
        if not isinstance(found, dict):
            self.fail(f"{value!r} is not a JSON object.", param, ctx)
        return found


@click.command()
@api_options
@click.option("--model", default="", help="Model to measure; default: the first one that the server lists.")
@click.option(
    "--api", type=click.Choice(("chat", "completions")), default="chat", show_default=True, help="API to send to."
)
@click.option(
    "--requests", type=click.IntRange(min=1), default=100, show_default=True, help="Number of measured requests."
)
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    help=f"Maximum number of requests in flight; default: {_CONCURRENCY}, or unlimited with --rate.",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    help="Mean number of new requests per second, with Poisson arrivals; default: as --concurrency allows.",
)
@click.option(
    "--prompt-tokens",
    type=click.IntRange(min=1),
    default=128,
    show_default=True,
    help="Approximate length of prompts, which are random words.",
)
@click.option(
    "--output-tokens", type=click.IntRange(min=1), default=128, show_default=True, help="Maximum length of responses."
)
@click.option("--ignore-eos", is_flag=True, help="Send ignore_eos, so that all responses have the maximum length.")
@click.option(
    "--extra-body",
    type=_Object(),
    default="{}",
    help="JSON object with more fields for the bodies of requests; null removes a field.",
)
@click.option(
    "--warmup",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Requests before the measured ones, one at a time. The command ends if the first one fails.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=600,
    show_default=True,
    help="Seconds per request.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of prompts and arrivals.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def load(
    url: str,
    api_key: str,
    model: str,
    api: Literal["chat", "completions"],
    requests: int,
    concurrency: int | None,
    rate: float | None,
    prompt_tokens: int,
    output_tokens: int,
    ignore_eos: bool,
    extra_body: dict[str, Any],
    warmup: int,
    timeout: float,
    seed: int,
    as_json: bool,
) -> None:
    """Measure an OpenAI-compatible server under load.

    Reports throughput, time to first token (TTFT), time per output token (TPOT), inter-token latency (ITL),
    end-to-end latency (E2E) and errors by kind. Responses are streamed. Ctrl-C ends the load and reports the
    requests that have ended.

    Exits with code 1 if no request succeeded.

    \b
    vinoqueue bench load --requests 200 --concurrency 32
    vinoqueue bench load --url http://host:8000/v1 --rate 5 --prompt-tokens 500
    """
    try:
        from cli.bench.endpoint import Endpoint
    except ModuleNotFoundError as error:
        raise click.ClickException(f"'bench load' needs the packages of the API: {error}") from None
    from cli.bench.report import as_text, summary
    from shared.runtime.event_loop import run

    fields = {"max_tokens": output_tokens, "temperature": 0, **({"ignore_eos": True} if ignore_eos else {})}
    source = random.Random(seed)  # noqa: S311
    warm = [_prompt(source, prompt_tokens) for _ in range(warmup)]
    prompts = [_prompt(source, prompt_tokens) for _ in range(requests)]
    if concurrency is None:
        concurrency = requests if rate else _CONCURRENCY
    outcomes: list[Outcome] = []

    async def measure(done: Callable[[int], object]) -> None:
        async with Endpoint(base_url(url), api_key, api, fields | extra_body, timeout=timeout) as endpoint:
            endpoint.fields.setdefault("model", model or await endpoint.first_model())
            await _warm_up(endpoint, warm)
            await _send(endpoint, prompts, concurrency, _pauses(source, rate, requests), outcomes, done)

    try:
        with bar("Requests", requests) as advance:
            run(measure(advance))
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:
        if not outcomes:
            raise
        echo(f"Stopped; {len(outcomes)} of {requests} requests had ended.", err=True)
    found = summary(outcomes)
    echo(json.dumps(found) if as_json else as_text(found))
    if not found["completed"]:
        raise SystemExit(1)


def _prompt(source: random.Random, tokens: int) -> str:
    return " ".join(source.choices(_WORDS.split(), k=tokens))


def _pauses(source: random.Random, rate: float | None, count: int) -> list[float]:
    """Return the seconds before each request; those of a Poisson process with ``rate``."""
    return [source.expovariate(rate) if rate else 0.0 for _ in range(count)]


async def _warm_up(endpoint: "Endpoint", prompts: Sequence[str]) -> None:
    """Send requests one at a time. Raises :class:`OSError` if the first one fails.

    A server that refuses the first one with 400 or 422 gets it again without ``stream_options``.
    """
    first = await endpoint.ask(prompts[0])
    if first.error in ("HTTP 400", "HTTP 422"):
        endpoint.with_usage = False
        again = await endpoint.ask(prompts[0])
        first = again if not again.error else first
    if first.error:
        raise OSError(f"The first request failed: {first.error}: {first.message}")
    for prompt in prompts[1:]:
        await endpoint.ask(prompt)


async def _send(
    endpoint: "Endpoint",
    prompts: Sequence[str],
    concurrency: int,
    pauses: Sequence[float],
    outcomes: "list[Outcome]",
    done: Callable[[int], object],
) -> None:
    """Send a request for each of ``prompts`` and append its outcome to ``outcomes``."""
    slots = asyncio.Semaphore(concurrency)

    async def one(prompt: str) -> None:
        async with slots:
            outcomes.append(await endpoint.ask(prompt))
        done(1)

    loop = asyncio.get_running_loop()
    due = loop.time()
    async with asyncio.TaskGroup() as group:
        for prompt, pause in zip(prompts, pauses, strict=True):
            due += pause
            if (left := due - loop.time()) > 0:
                await asyncio.sleep(left)
            group.create_task(one(prompt))
