"""Rollouts: episodes, scheduling, engines, the gateway, evaluation."""

if __name__ != "agar.rollout":  # reached through the checkout, not the package
    raise ImportError(f"import agar.rollout, not {__name__}")
