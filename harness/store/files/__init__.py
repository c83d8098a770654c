"""What the store keeps as files: artifacts by content, and folders that may only be read."""
