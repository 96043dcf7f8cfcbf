"""``vinoqueue bench``: the repository's benchmarks, and a load generator for any OpenAI-compatible server."""
