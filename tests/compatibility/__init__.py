"""What of each interface's reference is served: rows with a proof each, of which ``docs/compatibility.md`` is made.

``python -m tests.compatibility`` writes the page. What it says about a field is not written down anywhere: a row has a
request with that field, which the interface's own parser takes or refuses, or the field is looked for in rendered
answers.
"""
