"""`triage verify`: the claims of an issue, tried."""
