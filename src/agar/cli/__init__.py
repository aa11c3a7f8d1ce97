"""The `agar` command."""
