"""A tiny GPT-2 by Hugging Face's Trainer: evaluation, metrics, resuming; whole, sharded, or adapters only."""

import argparse

import numpy as np
import torch
import transformers
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


def texts(size):
    return [{"input_ids": (ids := torch.arange(i, i + 8) * 3 % 31), "labels": ids} for i in range(size)]


def metrics(prediction):
    logits, labels = prediction
    return {"accuracy": float(np.mean(np.argmax(logits[:, :-1], -1) == labels[:, 1:]))}


def model(adapters):
    config = GPT2Config(
        n_layer=2,
        n_head=2,
        n_embd=16,
        vocab_size=32,
        n_positions=16,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
        resid_pdrop=0,
        embd_pdrop=0,
        attn_pdrop=0,
    )
    made = GPT2LMHeadModel(config)
    if adapters:
        import peft

        made = peft.get_peft_model(
            made, peft.LoraConfig(target_modules=["c_attn"], fan_in_fan_out=True, lora_dropout=0)
        )
    return made


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--adapters", action="store_true")
    parser.add_argument("--fsdp", default="")
    parser.add_argument("--bf16", action="store_true")
    given = parser.parse_args()
    for last in (4, 8):
        transformers.set_seed(0)
        more = {"fsdp": given.fsdp} if given.fsdp else {}
        arguments = TrainingArguments(
            output_dir=given.folder,
            max_steps=last,
            save_steps=4,
            eval_strategy="steps",
            eval_steps=4,
            logging_steps=1,
            per_device_train_batch_size=2,
            per_device_eval_batch_size=2,
            gradient_accumulation_steps=2,
            learning_rate=1e-2,
            lr_scheduler_type="constant",
            report_to=[],
            seed=0,
            disable_tqdm=True,
            bf16=given.bf16,
            **more,
        )
        trainer = Trainer(
            model(given.adapters), arguments, train_dataset=texts(32), eval_dataset=texts(7), compute_metrics=metrics
        )
        trainer.train(resume_from_checkpoint=f"{given.folder}/checkpoint-4" if last > 4 else None)
    if trainer.is_world_process_zero():
        for entry in trainer.state.log_history:
            print(
                *(
                    f"{key} {entry[key]:.4f}"
                    for key in ("step", "loss", "grad_norm", "eval_loss", "eval_accuracy")
                    if key in entry
                )
            )
    trainer.save_model(f"{given.folder}/last")
    print(f"rank {trainer.args.process_index} of {trainer.args.world_size}")


if __name__ == "__main__":
    main()
