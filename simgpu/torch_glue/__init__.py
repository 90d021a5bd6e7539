"""What is replaced in torch, as one table of features, and nothing else: the rest of torch is as it was.

features ── install            the table, a row a feature; what puts rows in place and takes them away again
   ├── support_table           which features this torch has the names for
   ├── device_type             ``sim`` as a device type of torch; its storages
   ├── constructors            torch.Generator, torch.Stream, torch.Event
   ├── current_index           the index that is missing in ``x.to("sim")``
   ├── pinned_memory, accelerator, autograd, autocast, module_move, lazy, data_parallel, profiler, compile
   ├── safetensors             its files; nothing of torch's
   ├── as_cuda                 what `simgpu.as_cuda` replaces
   └── c10d, object_pickler, ddp, fsdp, dtensor, pipelining      torch.distributed while simulated ranks run
here                           which simulated rank the calling thread is
"""
