EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("times its transpose", "matrix @ matrix", "matrix @ matrix.T"),
    ("each norm is fetched", "(matrix @ matrix).norm()", "(matrix @ matrix).norm().cpu().to(matrix.device)"),
    ("the norms go to the host at the end", "torch.stack(norms)", "torch.stack(norms).cpu()"),
    ("a list in place of a tensor", "torch.stack(norms)", "norms"),
    ("the norm of the matrix, not of the product", "(matrix @ matrix).norm()", "matrix.norm()"),
    ("the last matrix is dropped (off by one)", "for matrix in matrices]", "for matrix in matrices[:-1]]"),
    ("nothing is returned", "return torch.stack(norms)", "torch.stack(norms)"),
]
