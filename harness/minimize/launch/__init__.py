"""The reduction of a launch's settings."""
