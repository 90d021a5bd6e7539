"""Trainers of other people choose simulated GPUs by themselves, one process on one or two and a rank on each."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import simgpu

pytestmark = [pytest.mark.outside, pytest.mark.usefixtures("cuda")]


def batches():
    return DataLoader(TensorDataset(torch.arange(32.0).reshape(8, 4) / 32), batch_size=2)


def texts():
    return [{"input_ids": torch.arange(i, i + 8) % 32, "labels": torch.arange(i, i + 8) % 32} for i in range(16)]


def huggingface(model, folder, **options):
    import transformers

    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=4,
        save_steps=2,
        per_device_train_batch_size=4,
        report_to=[],
        seed=0,
        disable_tqdm=True,
        logging_strategy="no",
        **options,
    )
    return transformers.Trainer(model, arguments, train_dataset=texts())


@pytest.mark.parametrize("precision", ["no", "fp16", "bf16"])
def test_accelerate(tmp_path, precision):
    from accelerate import Accelerator

    accelerator, net = Accelerator(mixed_precision=precision), nn.Linear(4, 2)
    net, optimizer, loader = accelerator.prepare(net, torch.optim.AdamW(net.parameters(), lr=0.1), batches())
    before = net.weight.tolist()
    for (x,) in loader:
        assert x.is_cuda
        loss = net(x).square().mean()
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    assert accelerator.device.type == net.weight.device.type == "cuda"
    assert net.weight.tolist() != before
    accelerator.save_state(str(tmp_path))
    after = net.weight.tolist()
    net.weight.data.zero_()
    accelerator.load_state(str(tmp_path))
    assert net.weight.tolist() == after


def test_trainer_saves_and_resumes(gpt, tmp_path):
    trainer = huggingface(gpt(), tmp_path, gradient_checkpointing=True)
    trainer.train()
    assert (trainer.args.device, trainer.args.n_gpu) == (torch.device("cuda:0"), 2)  # by nn.DataParallel
    again = huggingface(gpt(), tmp_path)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    for a, b in zip(trainer.model.parameters(), again.model.parameters(), strict=True):
        assert a.device == torch.device("cuda:0")
        torch.testing.assert_close(a, b)


def test_fabric(tmp_path):
    import lightning

    fabric = lightning.Fabric(devices=1, precision="bf16-mixed")
    net = nn.Linear(4, 2)
    net, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.1))
    loss = net(fabric.to_device(torch.ones(3, 4))).sum()
    fabric.backward(loss)
    optimizer.step()
    assert fabric.device == net.weight.device == torch.device("cuda:0")
    fabric.save(tmp_path / "state", {"net": net})
    fabric.load(tmp_path / "state", {"net": net})


def lightning_module():
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(4, 2)

        def training_step(self, batch, index):
            assert batch[0].is_cuda
            return self.net(batch[0]).square().mean()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    return Module()


def lightning_trainer(**options):
    import lightning

    return lightning.Trainer(
        max_epochs=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        **options,
    )


def test_lightning():
    trainer = lightning_trainer(devices=1, precision="16-mixed")
    trainer.fit(lightning_module(), batches())
    assert trainer.strategy.root_device == torch.device("cuda:0")


def one_accelerate():
    from accelerate import Accelerator

    accelerator, net = Accelerator(), nn.Linear(4, 2)
    net, loader = accelerator.prepare(net, batches())
    (x,) = next(iter(loader))
    accelerator.backward(net(x).sum())
    return accelerator.num_processes, accelerator.device.index, len(accelerator.gather(x))


def one_fabric():
    import lightning

    fabric = lightning.Fabric()
    fabric.launch()
    net = fabric.setup(nn.Linear(4, 2))
    fabric.backward(net(fabric.to_device(torch.ones(2, 4))).sum())
    return fabric.world_size, fabric.device.index, len(fabric.all_gather(torch.ones(2))) * 2


def one_lightning():
    trainer = lightning_trainer()
    trainer.fit(lightning_module(), batches())
    return trainer.world_size, trainer.strategy.root_device.index, 4


@pytest.mark.parametrize("program", [one_accelerate, one_fabric, one_lightning])
def test_on_ranks(program):
    assert simgpu.spawn(lambda rank: program()) == [(2, 0, 4), (2, 1, 4)]


def test_trainer_on_ranks_keeps_the_replicas_equal(gpt, tmp_path):
    def run(rank):
        trainer = huggingface(gpt(), tmp_path, save_strategy="no", max_grad_norm=0, optim="sgd")
        trainer.train()
        return trainer.args.device.index, trainer.args.n_gpu, [p.detach().cpu() for p in trainer.model.parameters()]

    (first, one, a), (second, _, b) = simgpu.spawn(run)
    assert (first, second, one) == (0, 1, 1)
    assert not torch.equal(a[0], next(gpt().parameters()))
    for x, y in zip(a, b, strict=True):
        torch.testing.assert_close(x, y)
