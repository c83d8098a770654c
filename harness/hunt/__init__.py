"""Programs are made and put to compilers, to find bugs that no report has yet."""
