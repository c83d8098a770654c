"""The process that executes launches: forks of it, under limits."""
