"""Sandboxes on another machine: a server in front of any backend, and the backend that speaks to it.

`agar sandbox serve` runs the server; `create(SandboxSpec(backend="remote", server="http://host:8600"))` makes a sandbox
there.
"""
