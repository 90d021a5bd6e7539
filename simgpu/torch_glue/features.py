"""What is replaced in torch, as one table: a row a feature.

A feature is something that torch does on simulated GPUs or simulated ranks because names of torch stand for something
else there. Its row says which names of torch it needs, what takes their place and when, what each rank has for itself,
and by which names programs use it: see `feature.Feature`. `install` puts rows in place. Who adds a feature adds a row,
and a file with what takes the names' places. `simgpu.features()` shows the table, with what this torch has of it.
"""

from simgpu.torch_glue.feature import Feature


def _each(maker, names, prefix=""):
    return {f"{prefix}{name}": maker for name in names.split()}


FACTORIES = (  # of torch, that make tensors
    *("arange", "empty", "empty_like", "empty_permuted", "empty_strided", "eye", "full", "full_like", "linspace"),
    *("logspace", "ones", "ones_like", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like"),
    *("randperm", "tensor", "zeros", "zeros_like"),
)
_C = "torch._C."
_NCCL, _DP, _LAZY = "torch.cuda.nccl.", "torch.nn.parallel.", "torch.nn.parameter.Uninitialized"
_PROFILE, _DYNAMO = "torch.autograd.profiler.profile.", "torch._dynamo."
_DIST, _C10D = "torch.distributed.", "torch.distributed.distributed_c10d."
_FSDP, _DTENSOR = "torch.distributed.fsdp.", "torch.distributed.tensor."
_CHECKPOINT, _PIPELINING = "torch.distributed.checkpoint.", "torch.distributed.pipelining."
_PARALLEL, _HOOKS = f"{_DP}distributed.DistributedDataParallel.", "torch.nn.modules.module."

CORE = (
    Feature(  # torch makes these objects in C++, through hooks that Python cannot fill in
        "the device type",
        core="enable",
        needs=f"""{_C}_acc.PrivateUse1Hooks {_C}_acc.DeviceGuard torch.AcceleratorError
            torch.utils.backend_registration._setup_privateuseone_for_python_backend
            torch.Tensor._make_wrapper_subclass {_C}_disabled_torch_function_impl {_C}_set_throw_on_mutable_data_ptr
            {_C}_dispatch_has_kernel_for_dispatch_key {_C}_set_conj {_C}_set_neg {_C}Generator
            {_C}_autograd.DeviceType.PrivateUse1 torch._utils._rebuild_parameter torch._utils._rebuild_tensor_v2
            torch._tensor_str._str torch.serialization._validate_device torch.Tensor._reduce_ex_internal
            torch.UntypedStorage._cdata torch.ops.aten.add.Tensor._schema torch.ops.aten.add.Tensor._op
            torch.ops.aten.add.Tensor._op_dk torch.utils._pytree.tree_map_only torch._higher_order_ops.flex_attention
            torch.library.Library._destroy
            torch._subclasses.FakeTensor torch._subclasses.functional_tensor.FunctionalTensor
            torch.jit._builtins._find_builtin torch.jit._builtins._register_builtin""",
        always={
            **_each("device_type.storage_new", "torch.UntypedStorage.__new__"),
            **_each("device_type.storage_device", "torch.UntypedStorage.device"),
            **_each("device_type.storage_resize", "torch.UntypedStorage.resize_"),
            "torch.Generator": "constructors.generator",
            "torch.Stream": "constructors.stream",
            "torch.Event": "constructors.event",
        },
        once="device_type.register",
    ),
    Feature(  # torch's guard for Python devices always answers 0 when it is asked for the current device
        "the current device's index",
        core="enable",
        needs="torch.overrides._get_current_function_mode_stack torch.utils._device.DeviceContext",
        always={
            **_each("current_index.filling_in_and_making", "torch.as_tensor torch.asarray torch.tensor"),
            "torch.Tensor.to": "current_index.filling_in",
        },
    ),
    Feature(  # torch's guard for Python devices tells autograd's engine of one device only
        "backward",
        core="enable",
        needs=f"{_C}_current_graph_task_id torch.autograd.graph.Node._input_metadata",
        always={
            "torch.autograd.graph._engine_run_backward*": "autograd.on_one_thread",
            "torch.autograd.function.BackwardCFunction.apply": "autograd.checking",
        },
        once="autograd.register",
    ),
    Feature(  # torch changes what a parameter holds only for tensors of one class in C++, and ours are of another
        "moving modules",
        core="enable",
        needs=f"{_C}_swap_tensor_impl",
        always={
            "torch.Tensor.data": "module_move.data",
            "torch._has_compatible_shallow_copy_type": "module_move.compatible",
            "torch.utils.swap_tensors": "module_move.swapping",
        },
    ),
    Feature(  # torch's C++ takes a registered Python device for the accelerator, and knows only one device of it
        "torch.accelerator",
        core="enable",
        always={
            **_each(
                "accelerator.function",
                """_accelerator_getAccelerator _accelerator_getDeviceIndex _accelerator_setDeviceIndex
                _accelerator_exchangeDevice _accelerator_maybeExchangeDevice _accelerator_getStream
                _accelerator_setStream _accelerator_synchronizeDevice _accelerator_isAllocatorInitialized
                _accelerator_emptyCache _accelerator_emptyHostCache@2.12 _accelerator_getDeviceStats
                _accelerator_resetAccumulatedStats _accelerator_resetPeakStats _accelerator_getMemoryInfo
                _accelerator_getDeviceCapability""",
                _C,
            ),
            "torch._utils._get_available_device_type*": "accelerator.available_type",
        },
    ),
    Feature(
        "process groups",
        "ranks",
        f"{_DIST}distributed_c10d",
        core="spawn",
        needs=f"""{_DIST}Backend.register_backend {_C10D}_World {_C10D}_check_valid_timeout
            {_C}_distributed_c10d._set_thread_isolation_mode""",
        always={f"{_DIST}Backend.backend_capability": "c10d.with_gloo"},
        in_spawn={
            **_each(
                "install.copied",
                "backend_list backend_capability backend_type_map default_device_backend_map _plugins",
                f"{_DIST}Backend.",
            ),
            f"{_C10D}init_process_group*": "c10d.init_process_group",
            f"{_C10D}_new_process_group_helper": "c10d.new_group",
            f"{_C10D}get_backend*": "group_names.get_backend",
            f"{_C10D}get_backend_config*": "group_names.get_backend_config",
            f"{_C10D}default_pg_nccl_timeout": "c10d.nccl_timeout",
            f"{_DIST}TCPStore*": "c10d.tcp_store",
            f"{_DIST}FileStore*": "c10d.file_store",
            # From torch 2.15 on groups get a recorder, which C++ code attaches to groups of C++ alone.
            f"{_C10D}_FR_SELF_RECORDING_BACKENDS@2.15": "c10d.without_recorder",
        },
        own={f"{_C10D}_world": "c10d.no_groups"},
        asked={f"{_DIST}get_debug_level": f"{_DIST}set_debug_level"},
        around_spawn="c10d.around",
    ),
)

OTHERS = (
    Feature(  # a forked worker that sends a tensor of ours would wait for ever, where CUDA's memory cannot be shared
        "DataLoader's workers",
        trigger="torch.utils.data.dataloader",
        always={"torch.utils.data.dataloader._DatasetKind.create_fetcher": "workers.create_fetcher"},
        entries="torch.utils.data.DataLoader.__iter__",
    ),
    Feature(  # torch leaves out meta tensors, whose numbers cannot be looked at, but does not know of ours without any
        "trunc_normal_ of shapes only",
        always={"torch.nn.init._no_grad_trunc_normal_": "initial.without_numbers"},
        entries="torch.nn.init.trunc_normal_",
    ),
    Feature(  # Python cannot give torch an allocator of pinned memory, so pin_memory=True marks ordinary memory
        "pinned memory",
        needs=f"{_C}DispatchKey.CompositeExplicitAutograd",
        always={
            **_each("pinned_memory.pinning", " ".join(FACTORIES), "torch."),
            "aten::_pin_memory/CPU": "pinned_memory.pin_memory",
            "aten::is_pinned/CPU": "pinned_memory.is_pinned",
        },
        entries="torch.Tensor.pin_memory torch.Tensor.is_pinned",
    ),
    Feature(  # the mechanism is torch's, the lists of operations are left to the device
        "torch.autocast",
        needs=f"""{_C}DispatchKey.AutocastPrivateUse1 {_C}_ExcludeDispatchKeyGuard {_C}DispatchKeySet
            torch.library.fallthrough_kernel""",
        always={"torch.is_autocast_enabled": "autocast.enabled"},
        once="autocast.register",
        entries="torch.amp.autocast_mode.autocast.__init__",
    ),
    Feature(  # as on CUDA, gradients are clipped and optimizers step over lists of tensors
        "lists of tensors",
        always={
            "torch.utils._foreach_utils._foreach_supported_types": "device_type.with_ours",
            "torch.optim.optimizer._foreach_supported_types": "device_type.with_ours",
        },
        entries="torch.optim.Optimizer.__init__",
    ),
    Feature(  # lazy modules have tensors of classes of their own, which simulated GPUs cannot hold
        "lazy modules",
        needs=f"{_C}DisableTorchFunctionSubclass {_C}TensorBase",
        always={
            f"{_LAZY}TensorMixin.materialize": "lazy.materialize",
            f"{_LAZY}TensorMixin.__torch_function__": "lazy.answer",
            f"{_LAZY}Parameter.__new__": "lazy.parameter",
            f"{_LAZY}Parameter.__deepcopy__": "lazy.deepcopy",
            f"{_LAZY}Buffer.__new__": "lazy.buffer",
        },
        entries="torch.nn.modules.lazy.LazyModuleMixin.__init__",
    ),
    Feature(  # nn.parallel's functions exist in builds with CUDA only, and for real GPUs
        "nn.DataParallel",
        needs=f"{_DP}_functions._get_stream",
        always={
            **{
                f"{_C}_{name}?": f"data_parallel.{name}"
                for name in (
                    *("broadcast", "broadcast_out", "broadcast_coalesced"),
                    *("scatter", "scatter_out", "gather", "gather_out"),
                )
            },
            f"{_NCCL}is_available": "data_parallel.nccl_is_available",
        },
        entries=f"{_DP}data_parallel.DataParallel.__init__ {_DP}comm.broadcast {_DP}comm.scatter {_DP}comm.gather",
    ),
    Feature(  # torch's profiler takes a device's events from a library of its maker
        "torch.profiler",
        always={
            f"{_PROFILE}__init__": "profiler.init",
            f"{_PROFILE}_start_trace": "profiler.begins",
            f"{_PROFILE}__exit__": "profiler.ends",
            f"{_PROFILE}_parse_kineto_results": "profiler.events",
        },
        in_spawn={f"{_PROFILE}_prepare_trace": "profiler.alone", f"{_PROFILE}__exit__": "profiler.another"},
        entries=f"{_PROFILE}__init__",
    ),
    Feature(
        "hooks of all modules",
        "ranks",
        own={
            **_each(
                "install.copied",
                """_global_buffer_registration_hooks _global_module_registration_hooks
                _global_parameter_registration_hooks _global_backward_pre_hooks _global_backward_hooks
                _global_is_full_backward_hook _global_forward_pre_hooks _global_forward_hooks
                _global_forward_hooks_always_called _global_forward_hooks_with_kwargs""",
                _HOOKS,
            ),
            **_each(
                "install.copied", "_global_optimizer_pre_hooks _global_optimizer_post_hooks", "torch.optim.optimizer."
            ),
        },
        entries=f"""{_HOOKS}register_module_forward_pre_hook {_HOOKS}register_module_forward_hook
            {_HOOKS}register_module_full_backward_hook torch.optim.optimizer.register_optimizer_step_pre_hook""",
    ),
    Feature(
        "the choice of attention kernels",
        "ranks",
        asked={
            f"{_C}_get_{name}_sdp_enabled": f"{_C}_set_sdp_use_{name}"
            for name in ("flash", "mem_efficient", "math", "cudnn", "overrideable")
        },
        entries="torch.nn.attention.sdpa_kernel",
    ),
    Feature(  # what traces a program follows tensors of classes it knows, and inductor has no code for this device
        "torch.compile",
        trigger="torch._dynamo",
        needs=f"""{_DYNAMO}variables.builder.VariableBuilder.wrap_tensor {_DYNAMO}trace_rules.add
            {_DYNAMO}config.fake_tensor_cache_enabled {_DYNAMO}config.accumulated_recompile_limit
            {_DYNAMO}eval_frame._next_isolate_recompiles_id@2.13""",
        always={
            "torch._TorchCompileInductorWrapper.__call__": "compile.without_ours",
            "torch.fx.experimental.proxy_tensor.HANDLED_TYPES": "compile.with_ours",
            f"{_DYNAMO}variables.builder.infer_subclass_type": "compile.no_subclass",
            f"{_DYNAMO}variables.builder.VariableBuilder._type_dispatch": "compile.dispatching",
            # A function in C++ from 2.15 on, which asks for the accelerator in C++.
            f"{_DYNAMO}utils.get_current_stream@2.15*": "compile.current_stream",
        },
        in_spawn={
            f"{_DYNAMO}eval_frame.set_eval_frame_isolate_recompiles_id@2.13": "compile.region",
            f"{_DYNAMO}convert_frame.compile_lock": "compile.Locks",
        },
        once="compile.hidden",
        in_rank="compile.each_for_itself",
        entries="torch._dynamo.optimize",
    ),
    Feature(  # before, autograd in C++ ends the process over a traced tensor on cuda
        "torch.compile inside simgpu.as_cuda",
        "GPUs under CUDA's name",
        "torch._dynamo",
        needs="torch._subclasses.FakeTensor._normalize_fake_device",
        entries=f"{_DYNAMO}optimize",
    ),
    Feature(
        'the clock of torch.compile(backend="aot_eager")',
        trigger="torch._dynamo.backends.debugging",
        always={f"{_DYNAMO}backends.debugging.boxed_nop": "compile.priced"},
        entries=f"{_DYNAMO}backends.debugging.aot_autograd",
    ),
    Feature(  # its code in Rust knows other devices by name, but all by number
        "safetensors",
        trigger="safetensors",
        always={"safetensors.safe_open*": "safetensors.opening"},
        entries="safetensors.safe_open",
    ),
    Feature(  # a rank's number is none of the system's: what is asked of it is asked of the process
        "psutil",
        trigger="psutil",
        always={"psutil.Process.__init__": "libraries.process"},
        entries="psutil.Process.__init__",
    ),
    Feature(  # an attribute of a function tells who prints, logs and saves
        "Lightning's rank",
        "ranks",
        "lightning_utilities.core.rank_zero",
        once="libraries.lightning",
        own={"lightning_utilities.core.rank_zero.rank_zero_only.rank?": "libraries.same"},
        in_rank="libraries.lightning",
    ),
    Feature(  # a handler that the first who logs makes, for the process's own stderr
        "logs of transformers",
        "ranks",
        "transformers.utils.logging",
        own={"transformers.utils.logging._default_handler": "libraries.same"},
    ),
    Feature(  # "cuda:1", torch.cuda.* and x.is_cuda mean simulated GPUs inside `simgpu.as_cuda`
        "simgpu.as_cuda",
        needs=f"""{_DP}_functions._get_stream {_C}_get_accelerator {_C}_is_autocast_available
            torch.cuda._initialized torch.cuda._lazy_init torch._VF
            torch.utils._device._device_constructors""",
        entries="simgpu.control.as_cuda",
    ),
    Feature(
        "functional collectives",
        "ranks",
        f"{_DIST}_functional_collectives",
        needs=f"{_DIST}_functional_collectives.AsyncCollectiveTensor",
        entries=f"{_DIST}_functional_collectives.all_reduce {_DIST}_functional_collectives.wait_tensor",
    ),
    Feature(
        "dispatch modes",
        "ranks",
        "torch.utils._python_dispatch",
        needs=f"{_C}_len_torch_dispatch_stack torch.utils._python_dispatch._pop_mode_temporarily torch._ops.OpOverload",
        entries="torch.utils._python_dispatch.TorchDispatchMode.__enter__",
    ),
    Feature(
        "objects between ranks",
        "ranks",
        f"{_DIST}distributed_c10d",
        in_spawn={f"{_C10D}_pickler": "object_pickler.pickler"},
        entries=" ".join(
            f"{_C10D}{name}*"
            for name in ("all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list")
        ),
    ),
    Feature(
        "batch_isend_irecv, monitored_barrier and split_group",
        "ranks",
        f"{_DIST}distributed_c10d",
        in_spawn={
            f"{_C10D}batch_isend_irecv*": "c10d.batch_isend_irecv",
            f"{_C10D}monitored_barrier*": "c10d.monitored_barrier",
            f"{_C10D}split_group*": "c10d.split_group",
        },
        entries=f"{_C10D}batch_isend_irecv* {_C10D}monitored_barrier* {_C10D}split_group*",
    ),
    Feature(
        "torch.distributed.rpc, refused",
        "ranks",
        f"{_DIST}rpc",
        in_spawn={f"{_DIST}rpc.init_rpc": "c10d.no_rpc"},
    ),
    Feature(
        "DDP",
        "ranks",
        f"{_DP}distributed",
        needs=f"""{_DIST}_register_comm_hook {_DIST}_compute_bucket_assignment_by_size
            {_DIST}Reducer.prepare_for_backward {_DIST}Reducer._rebuild_buckets {_DIST}Reducer._set_static_graph
            {_DIST}Reducer._set_mixed_precision_param_dtype {_DIST}Reducer._set_forward_pass_work_handle
            {_DIST}Reducer._set_ddp_runtime_logging_sample_rate {_DIST}Logger._get_ddp_logging_data
            torch.autograd.Variable._execution_engine""",
        always={f"{_DIST}Reducer": "ddp.reducer", f"{_DIST}Logger": "ddp.logger"},
        in_spawn={
            f"{_PARALLEL}_check_comm_hook": "ddp.check_hook",
            f"{_DIST}_verify_params_across_processes": "ddp.verify_params",
            f"{_DIST}_register_builtin_comm_hook": "ddp.register_hook",
        },
        around_spawn="ddp.around",
        entries=f"{_PARALLEL}__init__",
    ),
    Feature(
        "FSDP1",
        "ranks",
        f"{_FSDP}fully_sharded_data_parallel",
        in_spawn={
            f"{_FSDP}_init_utils._get_device_from_device_id": "fsdp.device_from_id",
            f"{_FSDP}fully_sharded_data_parallel._init_core_state": "fsdp.without_offload",
        },
        own={
            f"{_FSDP}_debug_utils.SimpleProfiler.profiling": "install.emptied",
            **_each("install.copied", "in_autowrap_context wrapper_cls kwargs", f"{_FSDP}wrap._ConfigAutoWrap."),
        },
        entries=f"{_FSDP}fully_sharded_data_parallel.FullyShardedDataParallel.__init__",
    ),
    Feature(
        "FSDP2",
        "ranks",
        f"{_FSDP}_fully_shard._fsdp_param",
        in_spawn={f"{_FSDP}_fully_shard._fsdp_param._chunk_with_empty": "fsdp.chunks"},
        entries=f"{_FSDP}_fully_shard._fsdp_param.FSDPParam.__init__",
    ),
    Feature(
        "DTensor",
        "ranks",
        f"{_DIST}tensor",
        needs=f"""{_DTENSOR}_random._RNGStateTracker {_DTENSOR}_dtensor_spec.DTensorSpec
            {_DTENSOR}_utils.try_find_mesh_from_args {_DTENSOR}_redistribute._gen_transform_infos_non_cached
            {_DTENSOR}_redistribute.DTensorRedistributePlanner""",
        in_spawn={
            f"{_DTENSOR}_redistribute._gen_transform_infos": "dtensor.steps",
            f"{_DTENSOR}_redistribute.get_redistribute_planner": "dtensor.planner",
            f"{_DTENSOR}_sharding_prop.ShardingPropagator.propagate_op_sharding_non_cached": "dtensor.propagate",
        },
        own={
            f"{_DTENSOR}_random._rng_tracker": "dtensor.tracker",
            # `context_parallel` and `loss_parallel` change these, in one rank while another is still outside.
            **_each(
                "install.copied",
                "op_strategy_funcs op_to_schema_info",
                f"{_DTENSOR}DTensor._op_dispatcher.sharding_propagator.",
            ),
            f"{_DTENSOR}DTensor._op_dispatcher._custom_op_handlers": "install.copied",
        },
        entries=f"{_DTENSOR}DTensor.__new__ {_DTENSOR}DTensor.from_local {_DTENSOR}distribute_tensor",
    ),
    Feature(
        "context parallelism",
        "ranks",
        f"{_DTENSOR}experimental._context_parallel._sharding_rules",
        own={f"{_DTENSOR}experimental._context_parallel._sharding_rules._cp_strategy_contexts": "install.copied"},
        entries=f"{_DTENSOR}experimental._context_parallel._attention.context_parallel",
    ),
    Feature(
        "pipelining",
        "ranks",
        f"{_DIST}pipelining",
        in_spawn={
            f"{_PIPELINING}_backward.reverse_closure": "pipelining.closure",
            f"{_PIPELINING}_backward.get_param_groups": "pipelining.groups",
            "torch.random.fork_rng": "pipelining.fork_rng",
            f"{_PIPELINING}schedules._PipelineSchedule._warmup_p2p@2.12-2.14": "pipelining.vote",
            f"{_PIPELINING}schedules._PipelineSchedule._initialize_pipeline_distributed_state@2.15": "pipelining.vote",
        },
        entries=f"{_PIPELINING}stage.PipelineStage.__init__",
    ),
    Feature(
        "distributed checkpoints",
        "ranks",
        f"{_DIST}checkpoint",
        in_spawn={f"{_CHECKPOINT}state_dict_saver.async_save*": "c10d.async_save"},
        own=_each(
            "install.emptied",
            "_cached_save_plan _cached_final_save_plan _cached_all_plans _cached_global_plan _cached_metadata",
            f"{_CHECKPOINT}planner.SavePlanner.",
        ),
        entries=f"{_CHECKPOINT}state_dict_saver.save* {_CHECKPOINT}state_dict_saver.async_save*",
    ),
)

FEATURES = (*CORE, *OTHERS)
