"""What is known: evidence, results, artifacts, bugs and workarounds, in one folder."""
