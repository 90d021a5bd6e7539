"""The labs on short numbers: unusual right answers pass, and what gains by sending nothing does not."""

from fractions import Fraction

import pytest
import torch
import torch.distributed as dist

from d2lmini import checks


def with_a_flag(parameters, gradients, scale, lr):
    """The ranks agree by a flag that is added up with the gradients; the scale comes back as a tensor."""
    flat = torch.cat([g.flatten() for g in gradients]).float() / size()
    flat = torch.cat([flat.nan_to_num(), (~flat.isfinite().all()).float().view(1)])
    dist.all_reduce(flat)
    if flat[-1].item():
        return torch.tensor(scale * 0.5)
    means = flat[:-1].split([p.numel() for p in parameters])
    torch._foreach_add_(parameters, [m.view_as(p) for m, p in zip(means, parameters)], alpha=-lr / scale)
    return torch.tensor(scale)


def gathered_step(parameters, gradients, scale, lr):
    """All ranks' gradients in 16 bits, added up by each."""
    flat = torch.cat([g.flatten() for g in gradients])
    parts = [torch.empty_like(flat) for _ in range(size())]
    dist.all_gather(parts, flat)
    mean = torch.stack(parts).float().mean(0)
    if mean.isnan().any() or mean.isinf().any():
        return Fraction(scale) / 2
    for p, part in zip(parameters, mean.split([p.numel() for p in parameters])):
        p.sub_(part.view_as(p), alpha=lr / scale)
    return scale


def size():
    return dist.get_world_size()


def gathered(tensor):
    parts = [torch.empty_like(tensor) for _ in range(size())]
    dist.all_gather(parts, tensor)
    return torch.stack(parts)


def in_one_message(gradient, unsent):
    """The scale's four bytes stand behind the codes, and codes are unsigned."""
    due = gradient + unsent
    scale = (due.abs().max() / 127).clamp(min=1e-30).view(1)
    codes = (torch.round(due / scale) + 128).to(torch.uint8)
    messages = gathered(torch.cat([codes, scale.view(torch.uint8)]))
    scales = messages[:, -4:].clone(memory_format=torch.contiguous_format).view(torch.float32)
    return ((messages[:, :-4].float() - 128) * scales).mean(0), due - (codes.float() - 128) * scale


def six_bits(gradient, unsent):
    """Four codes in three bytes, and a scale for each 64 numbers: fewer bytes than the book's answer."""
    due, n = gradient + unsent, len(gradient)
    blocks = torch.nn.functional.pad(due, (0, -n % 64)).view(-1, 64)
    scale = (blocks.abs().amax(1, keepdim=True) / 31).clamp(min=1e-30).bfloat16().float() * 1.01
    codes = torch.round(blocks / scale.bfloat16().float()).clamp(-32, 31) + 32
    a, b, c, d = codes.int().view(-1, 4).unbind(1)
    packed = torch.stack([a << 2 | b >> 4, (b & 15) << 4 | c >> 2, (c & 3) << 6 | d], 1).to(torch.uint8)
    parts = []
    for message, scales in zip(gathered(packed), gathered(scale.bfloat16())):
        x, y, z = message.int().unbind(1)
        found = torch.stack([x >> 2, (x & 3) << 4 | y >> 4, (y & 15) << 2 | z >> 6, z & 63], 1) - 32
        parts.append((found.view(-1, 64) * scales.float()).flatten()[:n])
    return torch.stack(parts).mean(0), due - parts[dist.get_rank()]


@pytest.mark.parametrize("answer", [with_a_flag, gathered_step])
def test_an_unusual_step_is_right(answer):
    assert checks.skipped_step(answer)


@pytest.mark.parametrize("answer", [in_one_message, six_bits])
def test_an_unusual_message_is_right(answer):
    assert checks.quarter_mean(answer)


def test_memory_that_ranks_share_is_no_message(capsys):
    shared = {}

    def through_memory(gradient, unsent):
        shared[dist.get_rank()] = gradient.clone()
        dist.barrier()
        mean = torch.stack([shared[rank].to(gradient.device) for rank in range(size())]).mean(0)
        dist.barrier()
        return mean, unsent

    assert not checks.quarter_mean(through_memory)
    assert "messages" in capsys.readouterr().out
