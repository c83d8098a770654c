"""Files and folders: where they lie, how they are read, and how they are written whole."""
