"""A classifier by Accelerate: accumulated gradients, clipping, a schedule, metrics of all ranks, resuming."""

import argparse

import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from accelerate.utils import broadcast_object_list, set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def data(accelerator, size):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(size, 8, generator=generator)
    y = (x @ torch.randn(8, 3, generator=generator)).argmax(1)
    with accelerator.main_process_first():
        return TensorDataset(x, y)


def train(accelerator, folder, epochs):
    set_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 3))
    loader = DataLoader(data(accelerator, 60), batch_size=4, shuffle=True)
    evaluation = DataLoader(data(accelerator, 21), batch_size=4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + 0.05 * step))
    model, optimizer, loader, evaluation, schedule = accelerator.prepare(model, optimizer, loader, evaluation, schedule)
    if epochs > 1:
        accelerator.load_state(folder)
    model.train()
    for step, (x, y) in enumerate(loader):
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        mean = accelerator.gather(loss.detach()).mean().item()
        if accelerator.sync_gradients:
            accelerator.print(f"epoch {epochs} step {step} loss {mean:.5f} norm {float(norm):.5f}")
    model.eval()
    right = total = 0
    for x, y in evaluation:
        with torch.no_grad():
            predictions, targets = accelerator.gather_for_metrics((model(x).argmax(1), y))
        right, total = right + (predictions == targets).sum().item(), total + len(targets)
    accelerator.print(f"accuracy {right} of {total}")
    accelerator.save_state(folder)
    accelerator.wait_for_everyone()
    whole = accelerator.get_state_dict(model)
    if accelerator.is_main_process:
        print("saved", sorted(whole), f"{sum(value.double().sum().item() for value in whole.values()):.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--precision", default="no")
    parser.add_argument("--fsdp", type=int, default=0)
    given = parser.parse_args()
    plugin = None
    if given.fsdp:
        more = {"use_orig_params": True} if given.fsdp == 1 else {}
        plugin = FullyShardedDataParallelPlugin(
            fsdp_version=given.fsdp, auto_wrap_policy="NO_WRAP", state_dict_type="FULL_STATE_DICT", **more
        )
    for epoch in (1, 2):
        accelerator = Accelerator(
            gradient_accumulation_steps=2,
            mixed_precision=given.precision,
            fsdp_plugin=plugin,
            step_scheduler_with_optimizer=False,
        )
        train(accelerator, given.folder, epoch)
        accelerator.free_memory()
    words = broadcast_object_list([f"from {accelerator.process_index}"])
    with accelerator.split_between_processes(list(range(5))) as mine:
        print(
            "rank",
            accelerator.process_index,
            words,
            mine,
            accelerator.reduce(torch.tensor(float(len(mine)), device=accelerator.device)).item(),
        )
    accelerator.end_training()


if __name__ == "__main__":
    main()
