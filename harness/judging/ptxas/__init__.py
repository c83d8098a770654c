"""What ptxas takes and what it leaves: flags, options, logs, cubins, SASS, resources."""
