"""What the API and the workers have in common: types, their codec, keys, settings and the queue protocol."""
