"""Which share of a collection of JSON schemas becomes a grammar, and whether texts of the grammars are valid.

``python -m tools.schema_reach FOLDER``. A folder has JSON files: schemas, lists of groups with a ``schema`` each, as in
the JSON-Schema-Test-Suite, or OpenAPI documents, of which every component is a schema. Random texts are made under each
grammar by the real compiler, on a tokenizer of 423 tokens, and judged by jsonschema-rs.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import jsonschema_rs

from bench.report import table
from tests.support.grammar_oracle import tiny_oracle
from worker.engine.protocol import OutputGrammar
from worker.grammar.lengths import LengthChecker
from worker.grammar.schema.compiler import schema_grammar
from worker.grammar.schema.keywords import SchemaError
from worker.grammar.schema.limits import length_limits_of

_MAX_GRAMMAR = 200_000
"""Characters of a grammar above which no texts are made: the service would refuse it for its compile time."""


_TEXTS = 5
"""Random texts of each grammar."""


def main(corpus: Path) -> None:
    """Measure the schemas in the folder ``corpus``, and print the tables."""
    counts: Counter[str] = Counter()
    refusals: Counter[str] = Counter()
    invalid: list[dict[str, Any]] = []
    for name, schema in schemas(corpus):
        counts["schemas"] += 1
        text = json.dumps(schema, ensure_ascii=False)
        try:
            grammar = schema_grammar(text)
        except SchemaError as error:
            refusals[f"{error.path.rsplit('/', 1)[-1]}: {error.reason}"[:90]] += 1
            continue
        counts["accepted"] += 1
        if len(grammar) > _MAX_GRAMMAR:
            counts["too large to try"] += 1
            continue
        with suppress(ValueError):
            validator = jsonschema_rs.validator_for(text, validate_formats=True)
            for seed in range(_TEXTS):
                made = _made(grammar, text, seed)
                counts["texts"] += made is not None
                if made is not None and not validator.is_valid(json.loads(made, parse_float=Decimal)):
                    invalid.append({"schema": name, "text": made})
    row: dict[str, object] = {
        **counts,
        "share": round(counts["accepted"] / counts["schemas"], 3),
        "invalid": len(invalid),
    }
    print(table(f"schemas of {corpus}", [row]))
    if refusals:
        print(
            table(
                "refusals", [{"keyword and reason": why, "schemas": count} for why, count in refusals.most_common(40)]
            )
        )
    if invalid:
        print(table("invalid", invalid))


def schemas(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield the schemas in the files of ``folder``, each with a name."""
    for file in sorted(folder.rglob("*.json")):
        match json.loads(file.read_text("utf-8-sig")):
            case list() as groups:
                yield from ((f"{file.stem}: {group['description']}", group["schema"]) for group in groups)
            case {"components": {"schemas": dict() as parts} as components}:
                yield from (
                    (name, {"$ref": f"#/components/schemas/{name}", "components": components}) for name in parts
                )
            case schema:
                yield file.stem, schema


def _made(grammar: str, schema: str, seed: int) -> str | None:
    made = tiny_oracle().random(OutputGrammar(grammar), seed)
    limits = length_limits_of([""], schema)
    return None if made is None or LengthChecker(limits).violates(made) else made


if __name__ == "__main__":
    main(Path(sys.argv[1]))
