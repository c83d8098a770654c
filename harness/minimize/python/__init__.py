"""The reduction of Python source."""
