"""Finding, downloading and identifying models."""
