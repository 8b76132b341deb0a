"""The numerics contract in executable form: orders, scalar meanings, elementary functions, random bits."""
