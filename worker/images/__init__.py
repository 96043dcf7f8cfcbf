"""The image process: images are decoded apart from all else, because a hostile file may crash or stall its decoder."""
