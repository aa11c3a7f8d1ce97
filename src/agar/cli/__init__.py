"""The `agar` command: one module a command, imported only when that command is run."""
