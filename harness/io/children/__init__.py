"""What runs inside child processes: supervision, limits, confinement. Standard library."""
