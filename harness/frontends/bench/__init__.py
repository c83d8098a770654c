"""What one run works with: store, children, limits; assembling and inspecting, kept by content."""
