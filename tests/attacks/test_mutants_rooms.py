"Rooms in which a small change went unnoticed: each test fails on one."
import itertools
import sys
import time
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from rdkit import Chem

import loflexmdm
from loflexmdm.exact.edit_laws import EditLaw, pair_law
from loflexmdm.exact.rank_calibration import randomised_ranks
from loflexmdm.methods.ordered_edits import OrderedEdits, OrderedEditsConfig
from loflexmdm.molecules.data.prepared import is_intact
from loflexmdm.molecules.growth import read_as_written
from loflexmdm.molecules.scores.makeable import FLAT, rings_in
from loflexmdm.networks.order_causal import block_mask
from loflexmdm.process.states import Vocabulary
from loflexmdm.process.streams import HEAD, Stream
from loflexmdm.samplers import EventDriven
from loflexmdm.samplers.choose import sampler_from
from loflexmdm.support.records import _document
from loflexmdm.tasks.brackets import edits_to_balanced
from loflexmdm.tasks.known_law import Case, score_cases
from loflexmdm.tasks.star_graphs import StarGraph, draw_star_answer, radial_layout
from loflexmdm.tasks.words import english
from loflexmdm.training import distributed


# molecules

def test_samples_are_saved_in_the_formats_of_their_task(tmp_path):
    samples = loflexmdm.load("molecules").sample(n=4, seed=0)
    lines = samples.save(tmp_path / "a.smi").read_text().splitlines()
    assert [line.split()[0] for line in lines] == [s for s in samples.smiles if s]


def test_written_hydrogens_are_kept(): assert read_as_written("[H]c1ccccc1").GetNumAtoms() == 7


@pytest.mark.parametrize("bridge, bent", [(FLAT - 1, True), (FLAT, False)])
def test_a_long_bridge_leaves_an_aromatic_ring_flat(bridge, bent):
    found = rings_in(Chem.MolFromSmiles(f"c1cc2ccc1{'C' * bridge}2"))
    assert ("bridged aromatic ring" in found) == bent


def test_a_damaged_file_without_a_digest_is_not_taken_for_whole(tmp_path):
    path = tmp_path / "old.arrow"
    path.write_bytes(b"ARROW1\0\0 and no more")
    with pytest.raises((ValueError, OSError)): is_intact(path)


# tasks and files

def test_english_names_the_package_that_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "wordfreq", None)
    with pytest.raises(ImportError, match="loflexmdm.words."): english()


def test_a_document_of_one_list_is_read(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"rows": ["ab", "c"]}')
    assert _document(path) == ["ab", "c"]


def test_two_opening_brackets_cost_one_substitution(): assert edits_to_balanced("((") == 1


def test_seconds_of_an_entrant_are_those_of_its_draws():
    case = Case("a", [..., "b"], [[]], 0.0, {0: 1.0})
    entrant = SimpleNamespace(
        nll=lambda cases: torch.zeros(len(cases), dtype=torch.float64), draw=lambda prompts, n, seed: [[[]], [[]]]
    )
    before = time.process_time()
    found = score_cases(entrant, [case, case], n=1)
    assert 0 <= 2 * found["seconds"] <= time.process_time() - before


GRAPH = StarGraph(edges=((0, 1), (1, 2), (1, 3), (1, 4)), source=0, goal=2, path=(0, 1, 2))


def test_the_way_in_is_drawn_opposite_the_way_out():
    places = radial_layout(GRAPH)
    centre = min(places, key=lambda v: np.hypot(*places[v]))
    out, into = (np.array(places[v]) for v in (2, 0))
    assert centre == 1 and np.dot(out, into) < -0.9 * np.hypot(*out) * np.hypot(*into)


def test_an_answer_with_nodes_that_are_not_there_is_drawn_without_them():
    ax = draw_star_answer(GRAPH, "0 1 1 5 5 1".split())
    plt.close(ax.figure)


# laws, samplers, streams

def test_a_pair_with_several_alignments_has_all_of_its_probability():
    found = pair_law(EditLaw.of({("AB", "BA"): 1.0}, "all optimal"))
    assert found.wanted.tolist() == [[1.0]] and abs(found.made.sum().item() - 1) < 1e-6


@pytest.mark.parametrize("truths, draws", [((2,), (2, 0)), ((3,), (2, 4)), ((2, 2), (2, 4))])
def test_ranks_need_draws_of_each_truth(truths, draws):
    with pytest.raises(ValueError, match="draws"): randomised_ranks(torch.zeros(truths), torch.zeros(draws))


def test_settings_of_a_saved_model_reach_its_sampler():
    saved = dict(top_p=0.7)
    assert sampler_from(None, EventDriven(), saved=saved).top_p == 0.7
    assert sampler_from(None, EventDriven(), saved=saved, top_p=0.9).top_p == 0.9


def test_a_clock_of_events_ends_after_every_token_has_come_changed_and_gone():
    model = OrderedEdits(Vocabulary("ab"), OrderedEditsConfig(size="nano", max_length=8))
    assert model.tau_max == 24


def test_the_head_of_a_stream_ends_before_its_size():
    with pytest.raises(ValueError, match="only the first"): Stream(lambda k: (), lambda row, k: "")[HEAD]


@pytest.mark.parametrize("paired", [True, False])
def test_blocks_see_what_may_have_happened(paired):
    content, first = 5, 3
    columns = content * 2 if paired else content + 2
    rule = block_mask(columns, first + content, content, torch.device("cpu")).mask_mod
    for column, key in itertools.product(range(columns), range(first + content)):
        seen = bool(rule(0, 0, torch.tensor(column), torch.tensor(key)))
        assert seen == (key <= first + column % content or not paired and column >= content)


# training in several processes

def test_an_error_within_a_round_sends_no_end(monkeypatch):
    told = []
    monkeypatch.setattr(distributed.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "broadcast", told.append)

    def items():
        raise KeyError("a")
        yield
    with pytest.raises(KeyError): list(distributed.from_all(items()))
    assert told == [True]
