"""`triage run --trace`: one value, back to where two runs first differ."""
