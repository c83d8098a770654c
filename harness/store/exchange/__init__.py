"""History from other stores, and results as files that other programs read."""
