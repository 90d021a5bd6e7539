EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("times its transpose", "matrix @ matrix", "matrix @ matrix.T"),
    ("each norm is fetched", "(matrix @ matrix).norm()", "(matrix @ matrix).norm().cpu().to(matrix.device)"),
    ("the norms go to the host at the end", "torch.stack(norms)", "torch.stack(norms).cpu()"),
    ("a list in place of a tensor", "torch.stack(norms)", "norms"),
    ("the norm of the matrix, not of the product", "(matrix @ matrix).norm()", "matrix.norm()"),
    ("the last matrix is dropped (off by one)", "for matrix in matrices]", "for matrix in matrices[:-1]]"),
    ("nothing is returned", "return torch.stack(norms)", "torch.stack(norms)"),
    ("always the first GPU", "torch.stack(norms)", "torch.stack(norms).to('sim:0')"),
]


def product_norms(matrices):
    """All matrices are taken to have as many rows as the first."""
    stack = torch.stack(matrices)
    return (stack @ stack).flatten(1).norm(dim=1)


def product_norms(matrices):
    """The host computes, and does not even wait for the numbers."""
    there = [torch.empty(m.shape).pin_memory().copy_(m, non_blocking=True) for m in matrices]
    norms = torch.stack([(m @ m).norm() for m in there])
    return norms.pin_memory().to(matrices[0].device, non_blocking=True)
