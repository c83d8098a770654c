"""`triage history` and `triage export`: the last result of each cell, version after version."""
