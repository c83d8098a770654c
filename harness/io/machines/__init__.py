"""Other machines: pieces of work are sent there by name, and what they answer comes back."""
