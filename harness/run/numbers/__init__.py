"""Values as numbers: types of elements, how far two results are apart, how far they may be."""
