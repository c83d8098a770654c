"""Register collapses: what they are, and what lifts them."""
