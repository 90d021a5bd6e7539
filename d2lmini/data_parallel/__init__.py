"""Data parallelism within one process: a replica on each device, a shard of the batch for each.

by_hand            the loop of the chapter, from parameters to an epoch
module             nn.DataParallel from inside: split, replicate, run, gather
sync_batch_norm ── rank_threads      statistics of the whole batch; ranks as threads that take turns
reducer            all-reduces buckets of gradients while backward still runs
compression        communication hooks for DDP that send less
"""

from d2lmini.data_parallel.by_hand import (
    allreduce,
    evaluate_accuracy_gpu,
    get_params,
    sgd,
    split_batch,
    train,
    train_batch,
)
from d2lmini.data_parallel.compression import Compressor, Signs, TopK, compressed_mean
from d2lmini.data_parallel.module import DataParallel, run_all
from d2lmini.data_parallel.rank_threads import together
from d2lmini.data_parallel.reducer import OverlappedAllreduce
from d2lmini.data_parallel.sync_batch_norm import SyncBatchNorm, all_reduce

__all__ = [
    "Compressor",
    "DataParallel",
    "OverlappedAllreduce",
    "Signs",
    "SyncBatchNorm",
    "TopK",
    "all_reduce",
    "allreduce",
    "compressed_mean",
    "evaluate_accuracy_gpu",
    "get_params",
    "run_all",
    "sgd",
    "split_batch",
    "together",
    "train",
    "train_batch",
]
