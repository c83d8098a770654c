"""Which config of a kernel is likely to run fastest, and how sure that is."""
