"""What the conformance kit checks, by subject; `agar.sandbox.checker` runs them."""
