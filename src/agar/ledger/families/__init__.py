"""Chat-template families, found by the hash of a model's template."""

from agar.ledger.families.base import Family
from agar.ledger.families.registry import family_for, register, registered, template_hash

__all__ = ["Family", "family_for", "register", "registered", "template_hash"]
