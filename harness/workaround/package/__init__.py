"""`triage package`: what each target leaves of the tuning lists of a package's kernels."""
