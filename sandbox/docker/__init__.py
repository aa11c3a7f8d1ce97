"""The Docker backend: one hardened container per sandbox, over the engine's HTTP interface on its unix socket.

`create(SandboxSpec(backend="docker"))` makes one. See `docs/sandbox.md` for what is isolated and how.
"""
