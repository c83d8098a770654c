"""`triage bugs`: failures by signature, their lives, and who knows of them."""
