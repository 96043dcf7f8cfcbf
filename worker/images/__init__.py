"""The image process: decodes images in isolation, because a hostile file may crash or stall its decoder."""
