"""`triage check`: the configs of a launch against one another, in the interpreter."""
