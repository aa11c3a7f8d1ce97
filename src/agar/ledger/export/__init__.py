"""Recorded episodes in the shapes of other programs: slime, verl, Harbor's ATIF, parquet."""
