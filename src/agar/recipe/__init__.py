"""Recipes: one file that says what a run is, and the parts built from it."""
