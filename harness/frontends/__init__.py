"""The door for compilers of kernel languages: the protocol, the registry, what they share."""
