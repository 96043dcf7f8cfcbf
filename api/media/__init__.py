"""Media in requests: reads the files that messages refer to."""
