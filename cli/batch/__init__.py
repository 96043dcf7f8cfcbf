"""``vinoqueue batch``: submit batches and follow them."""
