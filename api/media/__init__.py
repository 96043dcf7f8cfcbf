"""Media in requests: reads the files that messages refer to, and holds them in the media store."""
