"""Serving HTTP inside the caller's event loop: what the gateway and the tool servers listen with."""
