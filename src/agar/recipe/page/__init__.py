"""One self-contained HTML page of a run: rewards, episodes, and every token with what became of it."""
