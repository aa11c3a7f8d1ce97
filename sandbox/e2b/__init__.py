"""Sandboxes of E2B's service, or of anything that speaks its protocol: `SandboxSpec(backend="e2b", template="base")`.

A machine is made over a REST interface; commands run in it over the Connect protocol of its agent, and files travel
over plain HTTP. The key is in `E2B_API_KEY`.
"""
