"""Workers of a DataLoader are processes of their own, which cannot use a GPU that the program has used before."""

import os

import torch
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, i):
        return torch.tensor([i * i, os.getpid()])


class OnGpu(Squares):
    def __getitem__(self, i):
        return torch.ones(1).cuda()


torch.zeros(1).cuda()
if __name__ == "__main__":
    got = torch.cat(list(DataLoader(Squares(), batch_size=2, num_workers=2)))
    print(sorted(got[:, 0].tolist()), os.getpid() in got[:, 1].tolist())
    list(DataLoader(OnGpu(), num_workers=1))
