"""Using each word often once it is here: products that count what they read.

tiling         products by tiles, on matrices that count reads
loop_order     the same product with its loops in other orders
cache_model    a cache that counts hits
array_cost     what a product costs on a systolic array, by formula
systolic       arrays that pass values from neighbour to neighbour, run cycle by cycle
"""

from d2lmini.reuse.array_cost import DATAFLOWS, cost
from d2lmini.reuse.cache_model import Cache
from d2lmini.reuse.loop_order import compiled, loops_packed
from d2lmini.reuse.systolic import Array, multiply, skewed
from d2lmini.reuse.tiling import fewest_words, intensity, product_sizes

__all__ = [
    "DATAFLOWS",
    "Array",
    "Cache",
    "compiled",
    "cost",
    "fewest_words",
    "intensity",
    "loops_packed",
    "multiply",
    "product_sizes",
    "skewed",
]
