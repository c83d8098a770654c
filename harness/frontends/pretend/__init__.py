"""A GPU that is not there, as torch shows it to launch code: for children of any front end."""
