"""The reduction of what computes the wrong thing: candidates are executed."""
