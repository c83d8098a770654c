"""Kernels in cuTile that fail, or do not, by what they are launched with."""

import cuda.tile as ct


@ct.kernel
def added_kernel(left, right, result, size: ct.Constant[int]):
    """Each block adds `size` elements."""
    block = ct.bid(0)
    tile = ct.load(left, index=(block,), shape=(size,)) + ct.load(
        right, index=(block,), shape=(size,)
    )
    ct.store(result, index=(block,), tile=tile)


@ct.kernel
def product_kernel(left, right, result, size: ct.Constant[int], depth: ct.Constant[int]):
    """Each block computes `size` by `size` elements of a matrix product, `depth` at a time."""
    row, column = ct.bid(0), ct.bid(1)
    total = ct.zeros((size, size), dtype=ct.float32)
    for step in range(ct.num_tiles(left, axis=1, shape=(size, depth))):
        first = ct.load(left, index=(row, step), shape=(size, depth))
        second = ct.load(right, index=(step, column), shape=(depth, size))
        total = ct.mma(first, second, total)
    ct.store(result, index=(row, column), tile=total)


@ct.kernel
def wrong_kernel(source, what: ct.Constant[int]):
    """Does one thing that is refused."""
    tile = ct.load(source, index=(0,), shape=(128,))
    if what == 0:
        tile = tile + undefined_name  # noqa: F821 - that is the point
    if what == 1:
        tile = ct.load(source, index=(0,), shape=(100,))
    if what == 2:
        narrow = ct.astype(tile, ct.float8_e4m3fn)
        tile = ct.astype(narrow, ct.float32)
    ct.store(source, index=(0,), tile=tile)


@ct.kernel
def in_place_kernel(source):
    """Adds the sum of a row to the row, where it lies."""
    row = ct.arange(1, dtype=ct.int32)
    place = (ct.Slice(0, 1), row, ct.Slice(0, 32))
    tile = ct.load_advanced_indexing(source, place).reshape((1, 32))
    total = ct.sum(tile, axis=1).reshape((1, 1))
    ct.store_advanced_indexing(source, place, (tile + total).reshape((1, 1, 32)))
