"""Complete, tested examples; each folder is a package with its own README."""

if __name__ != "agar.examples":  # reached through the checkout, not the package
    raise ImportError(f"import agar.examples, not {__name__}")
