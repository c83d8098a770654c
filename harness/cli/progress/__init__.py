"""What long commands show while they work; always on stderr."""
