"""What a pinned torch brings along, and what the stored nights know of it."""
