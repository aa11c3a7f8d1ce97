"""A coding agent: it mends small repositories, and is judged where it has never been."""
