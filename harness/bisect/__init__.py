"""`triage bisect`: the version in which a failure began, and ended."""
