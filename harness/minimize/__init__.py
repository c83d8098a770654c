"""`triage minimize`: the least input that shows the same failure."""
