"""Environments: the contract, spaces, registry, tools, task sets, and the conformance check."""

if __name__ != "agar.envs":  # reached through the checkout, not the package
    raise ImportError(f"import agar.envs, not {__name__}")
