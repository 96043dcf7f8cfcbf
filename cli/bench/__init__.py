"""``vinoqueue bench``: the repository's benchmarks, and a load generator for any OpenAI-compatible server."""

from cli.bench.parts import PARTS, bench

__all__ = ["PARTS", "bench"]
