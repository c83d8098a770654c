"""Commands about this machine: toolchain, cache, doctor."""
