EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("one unit for the whole network", "        fully_shard(layer, reshard_after_forward=again)\n", ""),
    ("every layer is kept until backward", "=again)", "=False)"),
    ("no unit holds the layers together, so that nothing is prefetched", "    fully_shard(net)\n", ""),
    ("the last layer is freed, and needed at once", "again = layer is not net.layers[-1]", "again = True"),
    ("the losses stay on the GPU", "return [x.item() for x in losses], ", "return losses, "),
    ("the largest outputs stay on the GPU", "[x.item() for x in largest]", "torch.stack(largest)"),
    (
        "half of the bytes, for fewer digits",
        "=again)",
        "=again, mp_policy=torch.distributed.fsdp.MixedPrecisionPolicy(torch.bfloat16))",
    ),
    ("the last update is left out", "optimizer.step()", "x is not batches[-1] and optimizer.step()"),
    ("gradients are not averaged", "        loss.b", "        net.set_requires_gradient_sync(False)\n        loss.b"),
]


def hidden_gathers(net, batches):
    """The host waits for every layer."""
    losses, largest = [], []
    for layer in net.layers:
        layer.register_forward_hook(lambda layer, inputs, output: largest.append(output.detach().abs().max().item()))
        fully_shard(layer)
    fully_shard(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    for x in batches:
        loss = F.mse_loss(net(x), x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return [x.item() for x in losses], largest


def hidden_gathers(net, batches):
    """The whole network is replicated, and one all-reduce a parameter averages its gradient."""
    losses, largest = [], []
    for layer in net.layers:
        layer.register_forward_hook(lambda layer, inputs, output: largest.append(output.detach().abs().max()))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    for x in batches:
        loss = F.mse_loss(net(x), x)
        loss.backward()
        for p in net.parameters():
            torch.distributed.all_reduce(p.grad, op=torch.distributed.ReduceOp.AVG)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return [x.item() for x in losses], [x.item() for x in largest]


def hidden_gathers(net, batches):
    """Nothing is ever sharded: gradients are all-reduced while backward goes on."""
    losses, largest, works = [], [], []

    def ready(p):
        p.grad /= 2
        works.append(torch.distributed.all_reduce(p.grad, async_op=True))

    for p in net.parameters():
        p.register_post_accumulate_grad_hook(ready)
    for layer in net.layers:
        layer.register_forward_hook(lambda layer, inputs, output: largest.append(output.detach().abs().max()))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5, foreach=False)
    for x in batches:
        loss = F.mse_loss(net(x), x)
        loss.backward()
        while works:
            works.pop(0).wait()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses).tolist(), torch.stack(largest).tolist()


def hidden_gathers(net, batches):
    """Sharded only when training is over."""
    losses, largest, works = [], [], []

    def ready(p):
        p.grad /= 2
        works.append(torch.distributed.all_reduce(p.grad, async_op=True))

    hooks = [p.register_post_accumulate_grad_hook(ready) for p in net.parameters()]
    for layer in net.layers:
        layer.register_forward_hook(lambda layer, inputs, output: largest.append(output.detach().abs().max()))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5, foreach=False)
    for x in batches:
        loss = F.mse_loss(net(x), x)
        loss.backward()
        while works:
            works.pop(0).wait()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    for hook in hooks:
        hook.remove()
    for layer in net.layers:
        fully_shard(layer)
    fully_shard(net)
    return torch.stack(losses).tolist(), torch.stack(largest).tolist()
