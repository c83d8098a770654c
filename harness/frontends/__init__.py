"""The compilers of kernel languages, one folder each."""
