"Large data: orders by index, files within a limit, streams; each resumed in the middle of an epoch."
import random
from gzip import compress
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
from loflexmdm.support.random_numbers import Feistel, permutation
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


# texts of a file

def test_a_file_is_the_same_data_as_a_list(tmp_path):
    (file := tmp_path / "words.txt").write_text("\n".join(WORDS))
    of_file = SequencesTask(SequencesConfig(file=str(file), unit="characters", max_length=7))
    memory = SequencesTask(SequencesConfig(unit="characters", max_length=7), WORDS)
    assert of_file.rejections() == memory.rejections() and of_file.longest == memory.longest == 6
    assert of_file.splits == memory.splits and of_file.vocabulary == memory.vocabulary
    assert of_file.data.digests == memory.data.digests
    method = LoFlexMDM(memory.vocabulary, LoFlexMDMConfig(size="nano", max_length=7))
    made = memory.samples(Model(method), n=4, seed=0)
    assert of_file.score("test", made) == memory.score("test", made)


def test_equal_tokens_of_a_file_are_one_object(tmp_path):
    (file := tmp_path / "words.txt").write_text("alpha beta\nalpha gamma\n")
    first, second = sequences.sequences_of(sequences.records_of(SequencesConfig(file=str(file))))
    assert first[0] is second[0]


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch):
    (file := tmp_path / "words.txt").write_text("ab\n" * 50)
    read = sequences.sequences_of

    def read_and_change(*args):
        found = read(*args)
        file.write_text("ab\n" * 51)
        return found
    monkeypatch.setattr(sequences, "sequences_of", read_and_change)
    with pytest.raises(ValueError, match="words.txt: changed while being read; try again"):
        SequencesTask(SequencesConfig(file=str(file), unit="characters")).sizes()


@pytest.mark.parametrize("name, share", [("words.txt", 1), ("words.txt.gz", 4)])
def test_a_file_too_large_for_memory_is_refused_with_the_way_to_read_it(tmp_path, monkeypatch, name, share):
    (file := tmp_path / name).write_bytes(compress(b"ab\n" * 50) if share > 1 else b"ab\n" * 50)
    size = share * file.stat().st_size
    monkeypatch.setenv("LOFLEXMDM_MAX_TEXT", str(size - 1))
    said = f"{name}; stream = true, with steps, reads it while training: {size} bytes of text; at most {size - 1}"
    with pytest.raises(ValueError, match=said): SequencesTask(SequencesConfig(file=str(file))).sizes()
    assert sum(SequencesTask(SequencesConfig(file=str(file), unit="characters", limit=9)).sizes().values()) == 9
    monkeypatch.setenv("LOFLEXMDM_MAX_TEXT", str(size))
    assert sum(SequencesTask(SequencesConfig(file=str(file), unit="characters")).sizes().values()) == 50


@pytest.mark.parametrize("workers", [0, 2])
def test_training_resumes_in_the_middle_of_an_epoch_without_a_table_of_rows(monkeypatch, tmp_path, pico, workers):
    monkeypatch.setattr(permutations, "TABLE", 0)
    permutation.cache_clear()
    words = SequencesTask(SequencesConfig(unit="characters"), WORDS).dataset()
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


def test_molecules_are_collected_once_each(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "PART", 3)
    rows = ["CCO", "OCC", "CCN", "C(", "CCCl", "CCBr", "CCF", "CCN"]
    found = data.build_molecules(rows)
    assert list(found.smiles) == ["CCO", "CCN", "CCCl", "CCBr", "CCF"] and found.smiles[3] == "CCBr"
    assert found.rejects == dict(duplicate=2, unparsable=1) and found.examples["duplicate"] == [(2, "OCC"), (8, "CCN")]
    data.store(found, tmp_path / "m.arrow")
    kept = data.load_molecules(tmp_path / "m.arrow")
    assert kept.smiles == found.smiles and kept.texts == found.texts and kept.rejects == found.rejects
