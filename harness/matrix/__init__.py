"""The matrix file: which cells it selects, and what it expects of them."""
