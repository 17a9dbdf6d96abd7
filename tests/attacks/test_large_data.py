"Data that does not fit in memory: orders by index, rows on disk, streams; each resumed in the middle of an epoch."
import random
from itertools import islice

import pytest
import torch
from resuming import VOCABULARY, WORDS, check_resumed, trainer

from loflexmdm.methods.lo_flexmdm import LoFlexMDM, LoFlexMDMConfig
from loflexmdm.models.model import Model
from loflexmdm.molecules.data import prepared as data
from loflexmdm.molecules.task import MoleculesConfig, MoleculesTask
from loflexmdm.process.states import prefix_example
from loflexmdm.process.streams import UNLIMITED, Stream, shuffle_window, stream_batches
from loflexmdm.support import random_numbers as permutations
from loflexmdm.support.atomic_files import file_digest
from loflexmdm.support.data_digests import row_digest, rows_digest
from loflexmdm.support.random_numbers import Feistel, permutation
from loflexmdm.support.shards import BLOCK, TokenRows, read_splits, write_splits
from loflexmdm.tasks import sequences
from loflexmdm.tasks.sequences import SequencesConfig, SequencesTask
from loflexmdm.training.batches import batches, epoch_indices, row_at
from loflexmdm.training.optimisers import TrainConfig
from loflexmdm.training.recipes import recipe_from

@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LOFLEXMDM_CACHE", str(tmp_path / "cache"))
    sequences._read.cache_clear()
    return tmp_path / "cache"


def on_disk(tmp_path, monkeypatch, text=None, **options):
    "A task on a file, its sequences on the disk."
    monkeypatch.setattr(sequences, "IN_MEMORY", 0)
    (file := tmp_path / "words.txt").write_text("\n".join(WORDS) if text is None else text)
    return SequencesTask(SequencesConfig(file=str(file), unit="characters", **options))


# orders

@pytest.mark.parametrize("n", [1, 2, 3, 5, 16, 17, 99, 100, 101, 257])
def test_a_network_is_a_permutation(n):
    assert sorted(Feistel(n, "key")) == list(range(n))
    assert n < 16 or list(Feistel(n, "key")) != list(Feistel(n, "other"))


def test_orders_need_rows():
    with pytest.raises(ValueError, match="n=0: must be at least 1"): permutation(0, "key")
    with pytest.raises(IndexError): Feistel(5, "key")[5]


def test_small_orders_are_those_of_earlier_versions():
    generator = torch.Generator().manual_seed(permutations.seed_of(3, "epoch", 1))
    drawn = torch.randperm(50, generator=generator).tolist()
    assert [row_at(50, 3, 50 + k) for k in range(50)] == drawn


@pytest.mark.parametrize("table", [0, 2**21])
def test_each_epoch_has_every_row_once_and_any_position_can_be_asked_for(monkeypatch, table):
    monkeypatch.setattr(permutations, "TABLE", table)
    permutation.cache_clear()
    rows = list(islice(epoch_indices(40, 0, 7), 120))
    assert all(sorted(rows[k:k + 40]) == list(range(40)) for k in (0, 40, 80))
    assert rows[:40] != rows[40:80] and [row_at(40, 7, k) for k in (0, 57, 119)] == [rows[k] for k in (0, 57, 119)]
    permutation.cache_clear()


# rows on disk

def test_rows_come_back_and_digests_are_those_of_lists(tmp_path):
    rows = [tuple(w) for w in WORDS]
    write_splits((("train" if i % 3 else "test", row) for i, row in enumerate(rows)), tmp_path / "d", size=BLOCK)
    found = read_splits(tmp_path / "d")
    train = [row for i, row in enumerate(rows) if i % 3]
    assert list(found.rows["train"]) == train and len(found.rows["train"].rows.shards) > 1
    assert [found.rows["train"][i] for i in (300, 0, 255, 256)] == [train[i] for i in (300, 0, 255, 256)]
    assert found.digests["train"] == rows_digest(map(row_digest, train))
    for name, _, digest in found.rows["train"].rows.shards: assert file_digest(tmp_path / "d" / name) == digest


def test_a_wider_type_begins_a_new_shard(tmp_path):
    rows = [(str(i),) for i in range(2 * BLOCK)]
    write_splits((("train", row) for row in rows), tmp_path / "d")
    found = read_splits(tmp_path / "d")
    assert list(found.rows["train"]) == rows and len(found.rows["train"].rows.shards) == 2


@pytest.mark.parametrize("keep", [0, 300, 900])
def test_a_shard_that_shrinks_while_it_is_read_gives_one_line(tmp_path, keep):
    write_splits((("train", row) for row in map(tuple, WORDS)), tmp_path / "d")
    rows = read_splits(tmp_path / "d").rows["train"]
    assert rows[0] == tuple(WORDS[0])
    with open(tmp_path / "d/train-00000.arrow", "r+b") as f: f.truncate(keep)
    with pytest.raises(ValueError, match="train-00000.arrow: cannot be read, it was removed, cut off") as e: list(rows)
    assert "\n" not in str(e.value)


def test_nothing_is_left_of_a_source_that_fails(tmp_path):
    def pairs():
        yield "train", ("a",)
        raise ValueError("changed")
    with pytest.raises(ValueError, match="changed"): write_splits(pairs(), tmp_path / "d")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="no rows"): write_splits([], tmp_path / "d")


# texts on disk

def test_a_file_on_disk_is_the_same_data(tmp_path, monkeypatch):
    disk = on_disk(tmp_path, monkeypatch, max_length=7)
    memory = SequencesTask(SequencesConfig(unit="characters", max_length=7), WORDS)
    assert isinstance(disk.splits["train"], TokenRows) and disk.rejections() == memory.rejections()
    assert {s: list(r) for s, r in disk.splits.items()} == memory.splits and disk.vocabulary == memory.vocabulary
    assert disk.data.digests == memory.data.digests and disk.longest == memory.longest == 6
    method = LoFlexMDM(memory.vocabulary, LoFlexMDMConfig(size="nano", max_length=7))
    made = memory.samples(Model(method), n=4, seed=0)
    assert disk.score("test", made) == memory.score("test", made)


def test_a_changed_file_is_encoded_again_and_takes_the_others_place(tmp_path, monkeypatch, own_cache):
    assert sum(on_disk(tmp_path, monkeypatch).sizes().values()) == len(WORDS)
    assert sum(on_disk(tmp_path, monkeypatch, "\n".join(WORDS[:90])).sizes().values()) == 90
    assert len([p for p in (own_cache / "text").iterdir() if p.is_dir()]) == 1


def test_damage_of_the_cache_is_repaired(tmp_path, monkeypatch, own_cache):
    sizes = on_disk(tmp_path, monkeypatch).sizes()
    [shard] = (own_cache / "text").glob("*/train-00000.arrow")
    shard.write_bytes(shard.read_bytes()[:-9] + b"x" * 9)
    sequences._read.cache_clear()
    task = SequencesTask(SequencesConfig(file=str(tmp_path / "words.txt"), unit="characters"))
    assert task.sizes() == sizes and len(list(task.splits["train"])) == sizes["train"]


@pytest.mark.parametrize("workers", [0, 2])
def test_training_from_disk_resumes_in_the_middle_of_an_epoch(tmp_path, monkeypatch, pico, workers):
    monkeypatch.setattr(permutations, "TABLE", 0)
    permutation.cache_clear()
    words = on_disk(tmp_path, monkeypatch).dataset()
    check_resumed(lambda directory, **options: trainer(words, directory, 10, **options), tmp_path, workers)
    permutation.cache_clear()


# streams

def letters(window=50, rows=WORDS):
    make = lambda row, number: "short" if len(row) < 3 else prefix_example((), row, VOCABULARY)
    return Stream(lambda k: rows, make, window)


def test_a_window_never_brings_a_row_too_early():
    order = list(shuffle_window(range(300), 10, random.Random(0)))
    assert sorted(order) == list(range(300)) != order and max(i - k for k, i in enumerate(order)) <= 9


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_of_a_stream_do_not_depend_on_start_or_workers(workers):
    first = list(stream_batches(letters(), 16, 0, 60, 5))
    assert list(stream_batches(letters(), 16, 20, 60, 5, workers)) == first[20:]
    assert list(stream_batches(letters(), 16, 0, 60, 6)) != first


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stream_trains_and_resumes_exactly(tmp_path, pico, workers):
    check_resumed(lambda directory, **options: trainer(letters(), directory, 10, **options), tmp_path, workers)


def test_streams_that_give_nothing_give_one_line(monkeypatch):
    monkeypatch.setattr("loflexmdm.process.streams.FRUITLESS", 100)
    config = TrainConfig(steps=1, batch_size=2)
    for rows, said in (([], "the stream is empty"), (["a"], "none of 100 rows can be used .short.")):
        with pytest.raises(ValueError, match=said): next(batches(letters(rows=rows), config, 0, torch.device("cpu")))


def molecules(tmp_path, **options):
    (tmp_path / "m.smi").write_text("\n".join("C" * k + end for k in range(1, 60) for end in ("O", "N", "Cl", "(")))
    return dict(kind="molecules", source=str(tmp_path / "m.smi"), max_length=70, stream=True, **options)


def test_molecules_are_trained_on_as_they_are_read(tmp_path):
    tables = dict(task=molecules(tmp_path, limit=80), train=dict(steps=3))
    task, _ = recipe_from(tables).build()
    stream, held = task.dataset(), set(task.smiles("valid")) | set(task.smiles("test"))
    texts = {task.text(task.vocabulary.decode(stream[i].tokens[1:])) for i in range(150)}
    assert len(texts) > 40 and task.sizes()["train"] == UNLIMITED
    assert not held & {d.smiles for d in map(task.notation.decode, texts)}
    assert {"held out", "unparsable"} <= stream.left_out.keys()


def test_a_stream_needs_steps(tmp_path):
    with pytest.raises(ValueError, match="^steps: must be given, since the training data is a stream"):
        recipe_from(dict(task=molecules(tmp_path)))


def test_a_source_that_shrinks_while_it_is_streamed(tmp_path):
    values = molecules(tmp_path, limit=20)
    values.pop("kind")
    task = MoleculesTask(MoleculesConfig(**values))
    examples = task.dataset().examples(window=1)
    next(examples)
    (tmp_path / "m.smi").write_text("CCO\n")
    with pytest.raises(ValueError, match="m.smi: changed while being read"): list(islice(examples, 500))


def test_molecules_are_collected_once_each_on_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "PART", 3)
    rows = ["CCO", "OCC", "CCN", "C(", "CCCl", "CCBr", "CCF", "CCN"]
    found = data.build_molecules(rows)
    assert list(found.smiles) == ["CCO", "CCN", "CCCl", "CCBr", "CCF"] and found.smiles[3] == "CCBr"
    assert found.rejects == dict(duplicate=2, unparsable=1) and found.examples["duplicate"] == [(2, "OCC"), (8, "CCN")]
    data.store(found, tmp_path / "m.arrow")
    kept = data.load_molecules(tmp_path / "m.arrow")
    assert kept.smiles == found.smiles and kept.texts == found.texts and kept.rejects == found.rejects


def test_a_full_disk_is_an_error_of_the_system():
    with data.Spool() as spool:
        spool.add("C", "C")
        spool.seen.execute("PRAGMA max_page_count = 1")
        with pytest.raises(OSError, match="cannot be written .*full"):
            for i in range(10_000): spool.add("C", str(i))
