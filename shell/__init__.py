"""The lines that `llm memory install-shell` puts into shells' start-up files."""
