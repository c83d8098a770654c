"""`triage run`: executes what was compiled on real inputs, and says what came out."""
