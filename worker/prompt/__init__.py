"""The prompt process: chat templates, tokenisation and output plans."""
