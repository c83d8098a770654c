"""`triage matrix`: a whole matrix, in shards, merged."""
