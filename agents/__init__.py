"""The programs that play episodes: the chat agent, scripted agents, harnesses around existing programs."""

if __name__ != "agar.agents":  # reached through the checkout, not the package
    raise ImportError(f"import agar.agents, not {__name__}")
