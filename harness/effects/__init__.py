"""Everything that touches the world: processes, the package index, the disk."""
