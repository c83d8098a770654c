"""Commands about kernels: compile, run, check, show, kernels, import."""
