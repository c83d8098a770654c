"""`triage blame`: the component that is responsible, and the evidence for it."""
