"""The reduction of source by its syntax tree, in a language that a front end describes."""
