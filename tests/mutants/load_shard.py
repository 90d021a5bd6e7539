EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the last file is read from its front", "max(begin - first, 0)", "0"),
    ("one number too many from the last file", "max(end - first, 0)", "max(end - first + 1, 0)"),
    ("a negative end counts from behind", "max(end - first, 0)", "end - first"),
    ("the length is rounded down", "-(-n // ranks)", "n // ranks"),
    ("every file begins where the first does", "        first += len(file)\n", ""),
    ("a list", "return torch.cat(parts)", "return torch.cat(parts).tolist()"),
    ("half of the digits", "return torch.cat(parts)", "return torch.cat(parts).half()"),
    ("digits are lost on the way", "return torch.cat(parts)", "return torch.cat(parts).bfloat16().float()"),
    ("only the first file", "        first += len(file)\n", "        break\n"),
    (
        "nothing is left for a rank behind the end",
        "    return torch.cat(parts)",
        "    return torch.cat([part for part in parts if len(part)])",
    ),
]


def load_shard(files, rank, ranks):
    """Every rank reads the whole checkpoint."""
    whole = torch.cat([file[:] for file in files])
    each = -(-len(whole) // ranks)
    return whole[rank * each : (rank + 1) * each]


def load_shard(files, rank, ranks):
    """A rank reads its own file, as if as many had saved as load."""
    return files[rank][:]


def load_shard(files, rank, ranks):
    """Whole files are read that overlap with the shard."""
    each = -(-sum(map(len, files)) // ranks)
    begin, first, parts = rank * each, 0, [torch.empty(0)]
    for file in files:
        if first < begin + each and first + len(file) > begin:
            part = file[:]
            parts.append(part[max(begin - first, 0) : max(begin + each - first, 0)])
        first += len(file)
    return torch.cat(parts)


def load_shard(files, rank, ranks):
    """The parts differ by one number at most, as tensor_split makes them."""
    n = sum(map(len, files))
    sizes = [n // ranks + (r < n % ranks) for r in range(ranks)]
    begin, first, parts = sum(sizes[:rank]), 0, [torch.empty(0)]
    for file in files:
        parts.append(file[max(begin - first, 0) : max(begin + sizes[rank] - first, 0)])
        first += len(file)
    return torch.cat(parts)
