"""Weights between Hugging Face and Megatron: tables of rules, read in both directions."""
