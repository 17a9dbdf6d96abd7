"Seeds of 64 bits, permutations that are computed row by row, and rows that are shuffled as they stream."
import random
from collections import Counter
from pathlib import Path

import pytest
import torch

from loflexmdm.models.pretrained import load
from loflexmdm.process.streams import shuffle_window
from loflexmdm.support import random_numbers
from loflexmdm.support.random_numbers import (
    ROUNDS, TABLE, Feistel, ShardGenerator, current_launch, exponentials, generator_for, global_rows, global_shape,
    local_rows, permutation, quota, reduce_min, reduce_sum, seed_of_try, seeded, uniforms,
)
from loflexmdm.training.recipes import recipe


@pytest.mark.parametrize("n", [1, 2, 3, 10, 97, 100, 1000])
def test_a_network_permutes_and_its_key_decides(n):
    places = list(Feistel(n, "a"))
    assert sorted(places) == list(range(n)) and places == list(Feistel(n, "a")) and len(Feistel(n)) == n
    assert n < 10 or places != list(Feistel(n, "b"))
    for wrong in (-1, n):
        with pytest.raises(IndexError, match=f"index {wrong} is out of range for {n} elements"): Feistel(n)[wrong]


def z_of(counts: Counter, cells: int) -> float:
    "Return the z-score of counts under chi-square, for the uniform distribution."
    even = sum(counts.values()) / cells
    chi = sum((c - even) ** 2 for c in counts.values()) / even + even * (cells - len(counts))
    return (chi - (cells - 1)) / (2 * (cells - 1)) ** 0.5


def evenness(n: int, keys: int, rounds: int = ROUNDS) -> list[float]:
    "Return z-scores, over keys, of the first and last place and of the first pair of neighbours."
    drawn = []
    for seed in range(keys):
        order = Feistel(n, "even", seed)
        order.keys = order.keys[:rounds]
        drawn.append(tuple(order))
    pairs = z_of(Counter(p[:2] for p in drawn), n * (n - 1))
    return [z_of(Counter(p[0] for p in drawn), n), z_of(Counter(p[-1] for p in drawn), n), pairs]


@pytest.mark.slow
def test_places_and_pairs_of_a_permutation_are_even():
    assert max(map(abs, sum((evenness(n, 6000) for n in (4, 7, 16, 30)), []))) < 4
    assert evenness(16, 6000, rounds=2)[2] > 4  # too few rounds


def test_streams_of_seeds_with_one_lower_half_are_independent():
    firsts = torch.stack([
        torch.rand(8, generator=seeded(k * 2**32 + 1), dtype=torch.float64) for k in range(20_000)
    ])
    z = ((firsts.mean(0) - 0.5) * (12 * len(firsts)) ** 0.5).abs().max()
    z_pairs = torch.corrcoef(firsts[:, 0].unfold(0, 3, 1).T)[0, 1:].abs().max() * len(firsts) ** 0.5
    assert max(z, z_pairs) < 4 and len(set(firsts[:, 0].tolist())) == len(firsts)


def test_the_order_of_large_data_is_that_of_earlier_versions():
    "A run that goes on with another version would meet some rows twice and others never."
    large = permutation(10**9, "a", 3)
    assert [large[i] for i in range(4)] == [177878294, 518105648, 281107190, 491454103]
    assert isinstance(permutation(TABLE + 1, 7), Feistel) and not isinstance(permutation(TABLE, 7), Feistel)
    with pytest.raises(ValueError, match="n=0: must be at least 1"): permutation(0, 7)


@pytest.mark.parametrize("window", [1, 2, 10, 100, 200])
def test_streamed_rows_come_once_and_never_earlier_than_the_window(window):
    rows = list(range(100))
    found = list(shuffle_window(rows, window, random.Random(0)))
    assert sorted(found) == rows and all(row - place < window for place, row in enumerate(found))
    assert window == 1 or found != rows


SEEDS = (1, 2**32 + 1, 2**61 + 1, -1)
FIRST = [541782141, 2040296730]  # of the second seed


def test_all_bits_of_a_seed_decide():
    "A processor's generators take 32 bits from torch: 1 and 2^32 + 1 had one stream."
    streams = {tuple(torch.rand(2, generator=seeded(seed), dtype=torch.float64).tolist()) for seed in SEEDS}
    assert len(streams) == len(SEEDS)
    keyed = {torch.rand((), generator=generator_for(seed, "step", 0)).item() for seed in SEEDS}
    assert len(keyed) == len(SEEDS)


def test_a_seed_gives_the_same_stream_in_every_version():
    first = {seed: torch.randint(2**31, (2,), generator=seeded(seed)).tolist() for seed in SEEDS}
    assert first[1] == torch.randint(2**31, (2,), generator=torch.Generator().manual_seed(1)).tolist()
    assert first[2**32 + 1] == FIRST and torch.equal(seeded(-1).get_state(), seeded(2**64 - 1).get_state())


@pytest.mark.parametrize("wrong", [2**64, -2**63 - 1, 0.5, True, "1", None])
def test_what_is_not_a_seed_is_refused(wrong):
    with pytest.raises(ValueError, match=r"seed=.*: must be a whole number from -2\^63 to 2\^64 - 1"): seeded(wrong)


def test_every_generator_is_seeded_in_one_place():
    "Elsewhere `manual_seed` would take 32 bits."
    package = Path(random_numbers.__file__).parents[1]
    places = [p.name for p in package.rglob("*.py") if "manual_seed(" in p.read_text(encoding="utf-8")]
    assert places == ["random_numbers.py"]


def test_models_differ_by_seeds_of_64_bits():
    "First weights, samples and scores with seeds of which the lower 32 bits agree."
    def weights(seed):
        method = recipe("brackets", method="mdm", seed=seed).build()[1]
        return torch.cat([p.detach().flatten() for p in method.parameters()])
    assert not torch.equal(weights(1), weights(2**32 + 1)) and torch.equal(weights(2**32 + 1), weights(2**32 + 1))
    model = load("star-tiny")
    prompt = model.prompts("test", 1)
    told = [model.sample(prompt, n=8, seed=s, temperature=3.0).texts for s in (1, 2**32 + 1)]
    assert told[0] != told[1]
    bounds = [model.score([list("63072871020603")], states=2, seed=s) for s in (1, 2**32 + 1)]
    assert bounds[0] != bounds[1]


def test_rows_of_a_process_in_the_second_dimension():
    "Process r of N has columns r, r + N, ... where rows are columns."
    values = torch.arange(12).reshape(2, 6)
    found = [local_rows(values, ShardGenerator("cpu", rank, 3), dim=1) for rank in range(3)]
    assert [f.tolist() for f in found] == [[[r, r + 3], [r + 6, r + 9]] for r in range(3)]
    assert local_rows(values, None, dim=1) is values


def test_ranks_of_a_launch(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"): monkeypatch.delenv(name, raising=False)
    assert current_launch() == (0, 1, 0) and current_launch().is_main
    def launch(rank, world, local):
        for name, value in dict(RANK=rank, WORLD_SIZE=world, LOCAL_RANK=local).items(): monkeypatch.setenv(name, value)
        return current_launch()
    assert launch("1", "3", "0") == (1, 3, 0) and not current_launch().is_main and launch("0", "1", "1").local == 1
    for wrong in [("3", "3", "0"), ("-1", "2", "0"), ("0", "2", "-1"), ("x", "2", "0")]:
        with pytest.raises(ValueError,
            match=f"RANK={wrong[0]}, WORLD_SIZE={wrong[1]}, LOCAL_RANK={wrong[2]}"): launch(*wrong)
    monkeypatch.delenv("LOCAL_RANK")
    assert current_launch() == (0, 1, 0)


def test_rows_of_one_of_three_processes():
    plain, shard = torch.Generator().manual_seed(1), ShardGenerator("cpu", 1, 3).manual_seed(1)
    whole = uniforms((6, 2), plain)
    assert uniforms((2, 2), shard).equal(whole[1::3]) and whole.dtype == torch.float64
    plain, shard = torch.Generator().manual_seed(1), ShardGenerator("cpu", 2, 3).manual_seed(1)
    assert exponentials((4, 2), shard, dim=1).equal(exponentials((4, 6), plain, dim=1)[:, 2::3])
    assert global_rows(4, shard) == 12 and global_rows(4, plain) == global_rows(4, None) == 4
    assert global_shape((2, 4, 5), shard, 1) == [2, 12, 5] and local_rows(whole, None) is whole
    assert quota(.5, 4, shard) == 2 and quota(.5, 3, plain) == 2 and quota(.25, 4, None) == 1
    with pytest.raises(ValueError, match="classes=0.3: 4 of 12 rows cannot be divided equally among 3"):
        quota(.3, 4, shard, "classes")


def test_reductions_ask_other_processes_where_there_are_some(monkeypatch):
    asked, value = [], torch.tensor(2.0)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda *args: asked.append(args))
    shard = ShardGenerator("cpu", 1, 3)
    assert reduce_min(value, None) is value is reduce_sum(value, torch.Generator()) and not asked
    assert reduce_min(value, shard) is value is reduce_sum(value, shard)
    assert asked == [(value, torch.distributed.ReduceOp.MIN), (value,)]
    alone = ShardGenerator("cpu", 0, 1)
    assert reduce_min(value, alone) is reduce_sum(value, alone) is value and len(asked) == 2


def test_a_first_try_has_the_seed_itself():
    assert seed_of_try(7, 0) == 7 != seed_of_try(7, 1) != seed_of_try(8, 1) and seed_of_try(7, 1) == seed_of_try(7, 1)
    assert 0 <= seed_of_try(7, 1) < 2**63 and seed_of_try(7, 2) != seed_of_try(7, 1)
