"""Every kernel of a package, and what is left of it on a target."""
