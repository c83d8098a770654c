"""Engines that move and multiply whole matrices: fragments, wgmma, tcgen05, tensor maps.

Pure: they take arrays and return arrays, batched over CTAs and warps in the leading dimensions.
"""
