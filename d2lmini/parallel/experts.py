"""Experts: a router chooses for each token one of several feed-forward networks (Fedus et al., Switch, 2022).

router ── chosen ──┬── all-to-all: tokens to the ranks of their experts
                   ├── each rank's expert computes what came
                   └── all-to-all: results back to the ranks of the tokens
"""

import torch
import torch.distributed as dist
from torch import nn

from d2lmini.parallel.all_to_all import AllToAll


class Experts(nn.Module):
    """A router and all experts, on one device."""

    def __init__(self, width, hidden, count):
        super().__init__()
        self.router = nn.Linear(width, count, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width)) for _ in range(count)
        )

    def forward(self, x):
        """Return one row for each row of x, a token."""
        probability, chosen = self.router(x).softmax(-1).max(-1)
        y = torch.empty_like(x)
        for number, expert in enumerate(self.experts):
            y[chosen == number] = expert(x[chosen == number])
        return probability[:, None] * y


class ExpertParallel(nn.Module):
    """`Experts` on ranks: each has the router and one expert."""

    def __init__(self, layer):
        super().__init__()
        self.router = layer.router
        self.expert = layer.experts[dist.get_rank()]

    def forward(self, x):
        """Return one row for each row of x, this rank's tokens."""
        probability, chosen = self.router(x).softmax(-1).max(-1)
        order = chosen.argsort(stable=True)
        sent = chosen.bincount(minlength=dist.get_world_size())
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent)
        y = visit(self.expert, x[order], sent.tolist(), received.tolist())
        return probability[:, None] * y[order.argsort()]


def visit(expert, x, sent, received):
    """Send sorted tokens to their experts' ranks; return the results."""
    y = expert(AllToAll.apply(x, sent, received))
    return AllToAll.apply(y, received, sent)


def load_balance_loss(probabilities):
    """Return n Σ fₑ Pₑ over n experts: 1 when tokens are spread evenly, up to n.

    fₑ: the share of tokens that go to expert e. Pₑ: its mean probability.
    """
    n = probabilities.shape[-1]
    share = torch.bincount(probabilities.argmax(-1), minlength=n) / len(probabilities)
    return n * (share * probabilities.mean(0)).sum()
