"""Checks of the exercises, one a name: each tries the reader's function and prints one line that says what is wrong."""

from d2lmini.checks.allreduce_labs import cheapest_sum, hanging_ring, send_receive
from d2lmini.checks.cache_traffic import few_words
from d2lmini.checks.calibration import calibrate
from d2lmini.checks.cluster_labs import node_mean, slow_node, slow_rank
from d2lmini.checks.cluster_rates import fewest_servers, network_share, node_bytes, scaled_rate, third_time
from d2lmini.checks.context_labs import zigzag_ring
from d2lmini.checks.copies import fit_line, pack, prefetch
from d2lmini.checks.expert_labs import balance_loss
from d2lmini.checks.failing_programs import hanging_job, lone_resume, repeated_epoch
from d2lmini.checks.full_gpus import full_rank
from d2lmini.checks.gpu_choice import few_gpus
from d2lmini.checks.gradient_buckets import bucket_hook, bucket_plan
from d2lmini.checks.hierarchy import attainable_product, lines_in_flight, random_cycle
from d2lmini.checks.idle import clipped_mean
from d2lmini.checks.in_step import fit_together, left_over, one_order
from d2lmini.checks.inference import generate, most_users
from d2lmini.checks.layout_labs import choose_layouts, stage_layers
from d2lmini.checks.layout_trust import fastest, held_out
from d2lmini.checks.layouts import lowest_level, possible_layouts
from d2lmini.checks.loader_lab import repair_loader
from d2lmini.checks.mechanism import CHECKS, Wrong, attempt, brief, check, must_refuse
from d2lmini.checks.mesh_labs import mesh_step
from d2lmini.checks.message_labs import fewer_messages
from d2lmini.checks.narrow_labs import quarter_mean, skipped_step
from d2lmini.checks.needs import conv_share, doubling_months, fewest_gpus
from d2lmini.checks.numbers import loss_scale, most_ranks, send_largest, zero_point
from d2lmini.checks.own_tests import accepts, fewest_parts
from d2lmini.checks.pace import batch_for, bounded_queue, serial_share, two_buffers, worker_plan
from d2lmini.checks.parallel_costs import most_replicas, pipeline_seconds, qkv_rows, ring_seconds, split_loss
from d2lmini.checks.parallel_labs import overlapped, parallel_loss
from d2lmini.checks.placement import committed_sum, move, product_norms
from d2lmini.checks.portable import causal_mask, joined_mean, one_wait, placed_step
from d2lmini.checks.ranks import exposed_seconds, hiding_batch, sampler_indices
from d2lmini.checks.rare_averages import diloco
from d2lmini.checks.replica_memory import allreduce_bytes, share_memory
from d2lmini.checks.reports import verdict
from d2lmini.checks.ring_steps import recursive_doubling, ring_mean
from d2lmini.checks.running_labs import survive, suspects
from d2lmini.checks.scaling_labs import gpus_worth
from d2lmini.checks.scratch_labs import take_turns, wrong_lines
from d2lmini.checks.sets import checkpointed_peak, largest_batch, separable_macs
from d2lmini.checks.sharded_step import hidden_gathers
from d2lmini.checks.sharding import clip_shards, fsdp_peak, load_shard, zero1_step, zero_bytes
from d2lmini.checks.shards import first_gpu_bytes, joined_moments, mean_gradient, split_batch
from d2lmini.checks.small_kernels import ensemble
from d2lmini.checks.split_ranks import split_feed_forward, to_experts, zero_bubble
from d2lmini.checks.step_peak import small_peak
from d2lmini.checks.tiles import cannon, register_tile, tile_reads
from d2lmini.checks.traffic import momentum_step
from d2lmini.checks.trust import claim_holds, rate_ends, ring_constants
from d2lmini.checks.warp_labs import transpose

__all__ = [
    "CHECKS",
    "Wrong",
    "accepts",
    "allreduce_bytes",
    "attainable_product",
    "attempt",
    "balance_loss",
    "batch_for",
    "bounded_queue",
    "brief",
    "bucket_hook",
    "bucket_plan",
    "calibrate",
    "cannon",
    "causal_mask",
    "cheapest_sum",
    "check",
    "checkpointed_peak",
    "choose_layouts",
    "claim_holds",
    "clip_shards",
    "clipped_mean",
    "committed_sum",
    "conv_share",
    "diloco",
    "doubling_months",
    "ensemble",
    "exposed_seconds",
    "fastest",
    "few_gpus",
    "few_words",
    "fewer_messages",
    "fewest_gpus",
    "fewest_parts",
    "fewest_servers",
    "first_gpu_bytes",
    "fit_line",
    "fit_together",
    "fsdp_peak",
    "full_rank",
    "generate",
    "gpus_worth",
    "hanging_job",
    "hanging_ring",
    "held_out",
    "hidden_gathers",
    "hiding_batch",
    "joined_mean",
    "joined_moments",
    "largest_batch",
    "left_over",
    "lines_in_flight",
    "load_shard",
    "lone_resume",
    "loss_scale",
    "lowest_level",
    "mean_gradient",
    "mesh_step",
    "momentum_step",
    "most_ranks",
    "most_replicas",
    "most_users",
    "move",
    "must_refuse",
    "network_share",
    "node_bytes",
    "node_mean",
    "one_order",
    "one_wait",
    "overlapped",
    "pack",
    "parallel_loss",
    "pipeline_seconds",
    "placed_step",
    "possible_layouts",
    "prefetch",
    "product_norms",
    "qkv_rows",
    "quarter_mean",
    "random_cycle",
    "rate_ends",
    "recursive_doubling",
    "register_tile",
    "repair_loader",
    "repeated_epoch",
    "ring_constants",
    "ring_mean",
    "ring_seconds",
    "sampler_indices",
    "scaled_rate",
    "send_largest",
    "send_receive",
    "separable_macs",
    "serial_share",
    "share_memory",
    "skipped_step",
    "slow_node",
    "slow_rank",
    "small_peak",
    "split_batch",
    "split_feed_forward",
    "split_loss",
    "stage_layers",
    "survive",
    "suspects",
    "take_turns",
    "third_time",
    "tile_reads",
    "to_experts",
    "transpose",
    "two_buffers",
    "verdict",
    "worker_plan",
    "wrong_lines",
    "zero1_step",
    "zero_bubble",
    "zero_bytes",
    "zero_point",
    "zigzag_ring",
]
