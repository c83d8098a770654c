"""`triage site`: what the store knows, as static pages."""
