"""The child that runs launch code with values, and hands each launch to its caller."""
