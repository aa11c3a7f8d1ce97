"""What the conformance check looks at, a module a level; `agar.envs.checker` runs them."""
