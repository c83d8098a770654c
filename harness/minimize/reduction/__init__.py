"""What reductions of every kind share: the driver, what is interesting, the folder."""
