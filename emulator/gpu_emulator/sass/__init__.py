"""SASS, the machine code of a GPU: cubins, their programs and their instructions."""
