"""Services that tools call."""

if __name__ != "agar.tool_servers":  # reached through the checkout, not the package
    raise ImportError(f"import agar.tool_servers, not {__name__}")
