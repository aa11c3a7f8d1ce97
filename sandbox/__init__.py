"""Isolated execution of code that nobody trusts."""

if __name__ != "agar.sandbox":  # reached through the checkout, not the package
    raise ImportError(f"import agar.sandbox, not {__name__}")
