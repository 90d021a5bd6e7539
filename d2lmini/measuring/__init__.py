"""Measuring machines and networks.

transfers, line_fit                            what a copy takes, and the line through such times
copy_overlap                                   batches that are copied while the one before is in use
memory_hierarchy ── memory_loops, levels       time and bandwidth by working set, and which cache it fits
roofline                                       what bounds an operation here
product_loops                                  a product by loops in several orders, and by torch
library_calls                                  products by torch, by size, on all cores of this machine
hidden_units                                   a step of training by the width of the network
unconstrained                                         measuring in a process that no setting holds back
layer_costs                                    what a network's layers compute, keep and take
throughput, loading ── feeding                 examples a second, what feeds them, and a loop to repair
operations                                     what hands each operation of torch to a function
"""

from d2lmini.measuring.layer_costs import profile
from d2lmini.measuring.transfers import Route

__all__ = ["Route", "profile"]
