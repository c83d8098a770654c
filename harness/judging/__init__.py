"""From evidence to a verdict, its signature, and what counts as the same failure. Pure."""
