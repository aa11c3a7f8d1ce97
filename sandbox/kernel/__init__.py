"""A Python interpreter inside a sandbox that keeps its variables from one cell to the next."""
