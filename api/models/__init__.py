"""Models: which the workers announce, how names are resolved, and how fast they serve."""
