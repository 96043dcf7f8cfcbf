"""``vinoqueue chat``: chat with a model in the terminal."""
