"What several test files need."
import torch


def seeded(n: int) -> torch.Generator:
    "A generator with the seed `n`."
    return torch.Generator().manual_seed(n)
