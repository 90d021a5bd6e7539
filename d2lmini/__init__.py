"""The package under the book: devices, data, models, timing, data parallelism and a trainer.

Names follow d2l where d2l has them, so ``import d2lmini as d2l`` runs a reader's code from d2l's GPU sections. They are
looked up when first used: importing the package costs little and changes nothing in torch. Where a function has its
module's name (`devices.devices`), the plain name is the module.
"""

from importlib import import_module

_HOMES = {
    "devices": "cpu describe gpu num_gpus synchronize to try_all_gpus try_gpu",
    "timing": "Benchmark Measurement Timer compare human measure provenance",
    "data": "Batches FASHION_MNIST_LABELS load_data_digits load_data_fashion_mnist load_data_mnist",
    "models": "LeNet Residual he lenet lenet_params",
    "data_parallel": "DataParallel OverlappedAllreduce SyncBatchNorm allreduce evaluate_accuracy_gpu get_params sgd "
    "split_batch train_batch",
    "trainer": "CheckpointError DivergedError History HyperParameters Trainer add_to_class",
    "figures.drawings": "drawing",
    "figures.plots": "Animator",
    "figures.questions": "ask predict",
    "figures.tables": "table",
    "figures.widgets": "explore",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME)


def __getattr__(name):
    if name not in _HOME:
        raise AttributeError(f"module 'd2lmini' has no attribute {name!r}")
    return getattr(import_module(f"d2lmini.{_HOME[name]}"), name)


def __dir__():
    return sorted({*globals(), *__all__})
