"""Training: algorithms, batching, Megatron ranks, publication of weights."""

if __name__ != "agar.trainer":  # reached through the checkout, not the package
    raise ImportError(f"import agar.trainer, not {__name__}")
