EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the momentum is not loaded", '        job.optimizer.load_state_dict(state["optimizer"])\n', ""),
    ("the same batches are drawn again", '        job.generator.set_state(state["generator"])\n', ""),
    ("the weights are not loaded", '        job.net.load_state_dict(state["net"])\n', ""),
    (
        "the only good file is overwritten",
        "torch.save(state, new)\n            new.replace(file)",
        "torch.save(state, file)",
    ),
    (
        "the old file is deleted first",
        "new.replace(file)",
        "file.unlink(missing_ok=True)\n            new.rename(file)",
    ),
    ("the last step is computed again", '"step": step + 1', '"step": step'),
    ("a checkpoint after every step", "if (step + 1) % every == 0:", "if True:"),
    ("a step too early", "if (step + 1) % every == 0:", "if step % every == 0:"),
    ("never loaded", "if file.exists():", "if False:"),
    ("never renamed", "            new.replace(file)\n", ""),
]
