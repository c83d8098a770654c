"""`triage workaround`: what can be done today, proved and ranked."""
