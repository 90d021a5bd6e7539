"""A classifier by Lightning's Trainer: validation, metrics of all ranks, checkpoints, resuming, testing."""

import argparse

import lightning
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def data(size):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(size, 8, generator=generator)
    return TensorDataset(x, (x @ torch.randn(8, 3, generator=generator)).argmax(1))


class Classifier(lightning.LightningModule):
    def __init__(self, width=32):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(8, width), nn.GELU(), nn.Linear(width, 3))

    def loss(self, batch):
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def training_step(self, batch, index):
        loss = self.loss(batch)
        self.log("loss", loss, on_step=True, sync_dist=True)
        return loss

    def validation_step(self, batch, index):
        self.log("validation", self.loss(batch), sync_dist=True)

    def test_step(self, batch, index):
        self.log("test", self.loss(batch), sync_dist=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.trainer.model.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)]


class Print(Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        value = trainer.callback_metrics["loss"].item()
        if trainer.is_global_zero:
            print(f"epoch {trainer.current_epoch} batch {index} loss {value:.5f}")


def trainer(given, epochs):
    return lightning.Trainer(
        strategy=given.strategy,
        devices=given.devices,
        precision=given.precision,
        max_epochs=epochs,
        accumulate_grad_batches=2,
        gradient_clip_val=1.0 if given.strategy == "ddp" and not given.no_clipping else None,
        callbacks=[Print(), ModelCheckpoint(given.folder, save_last=True)],
        default_root_dir=given.folder,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=True,
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--strategy", default="ddp")
    parser.add_argument("--precision", default="32-true")
    parser.add_argument("--no-clipping", action="store_true")
    parser.add_argument("--devices", type=int, default=2)
    given = parser.parse_args()
    lightning.seed_everything(0)
    loaders = DataLoader(data(48), batch_size=4, shuffle=True), DataLoader(data(16), batch_size=4)
    trainer(given, 1).fit(Classifier(), *loaders)
    again = trainer(given, 2)
    again.fit(Classifier(), *loaders, ckpt_path=f"{given.folder}/last.ckpt")
    (found,) = again.test(Classifier(), loaders[1], ckpt_path=f"{given.folder}/last.ckpt", verbose=False)
    print(f"rank {again.global_rank} of {again.world_size} test {found['test']:.5f} steps {again.global_step}")


if __name__ == "__main__":
    main()
