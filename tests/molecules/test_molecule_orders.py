"Orders of generation of molecules: kinds of tokens, times with known answers, tables, pictures, and what is refused."
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from rdkit import Chem

from loflexmdm.methods.lo_flexmdm import LoFlexMDM, LoFlexMDMConfig
from loflexmdm.methods.sampling import generate
from loflexmdm.molecules.notation.bracket_safe import split_attachments, to_bracket_safe, tokenize
from loflexmdm.molecules.notation.bracket_safe import vocabulary_of
from loflexmdm.molecules.orders import CATEGORIES, atom_tokens, categories, category_rates, molecule_of
from loflexmdm.molecules.orders import normalised_times, plot_generation, plot_molecule, plot_states, state_lines
from loflexmdm.molecules.orders import summarise
from loflexmdm.process.schedules import sample_event_taus
from loflexmdm.process.states import MASK, Vocabulary
from loflexmdm.samplers import Samples, Trajectory

sys.path.append(str(Path(__file__).parents[2] / "experiments"))
from molecule_orders import PAPER_TIMES, category_times, decodable, keep, order_table  # noqa: E402
from molecule_orders import sample_categories, structure_lead  # noqa: E402

SMILES = (
    "CC(=O)Oc1ccccc1C(=O)O", "CCN(CC)CC(=O)Nc1c(C)cccc1C", "Cn1cnc2c1c(=O)n(C)c(=O)n2C",
    "Cc1ccc(cc1)-c1cc(nn1-c1ccc(cc1)S(N)(=O)=O)C(F)(F)F",
    "C=C[C@H]1CN2CC[C@H]1C[C@H]2[C@H](O)c1ccnc2ccc(OC)cc12", "F/C=C/C1CC1", "[2H]OCC", "O",
)
TEXT = "c1ccoc1<1>.C<1>"
BORN = [0.0, 0.0, 0.2, 0.2, 0.2, 0.2, 0.0, 0.4, 0.6, 0.8, 1.0]


def clock(row): return [-math.log1p(-0.5 * t) for t in row]


def by_hand(text=TEXT, times=BORN, fixed=0):
    "A vocabulary and one sample of `text` with these times (both events), its first tokens a prompt."
    tokens = tokenize(text)
    vocabulary = vocabulary_of([text])
    track = Trajectory([], clock(times), clock(times))
    return vocabulary, Samples(
        [vocabulary.encode(tokens)], [[k >= fixed for k in range(len(tokens))]], trajectories=[track]
    )


@pytest.mark.parametrize(
    "kind, tokens",
    [
        ("ring closure", "1 9 % %10 %(123)"),
        ("fragment separator", "."),
        ("aromatic atom", "c n o s p b [nH] [n+] [13cH] [se] [c-]"),
        ("attachment point", "<1> <%12>"),
        ("aliphatic atom", "C N Cl Br [C@@H] [2H] [NH3+] [Si] [Cu+2] * [1*]"),
        ("bond or branch", "= # ( ) - / \\ : $ -> <-"),
        ("attachment bracket", "< >"),
    ],
)
def test_kinds(kind, tokens): assert [categories([t]) for t in tokens.split()] == [[kind]] * len(tokens.split())


@pytest.mark.parametrize("text", ["c1<%12>ccc1.C<1>", "C<1><2>", "C%10CC%10<%13>", "C<%123>1"])
def test_split_attachments_give_labels_and_brackets(text):
    whole, parts = tokenize(text), split_attachments(tokenize(text))
    kinds = categories(parts)
    assert [k for k in kinds if not k.startswith("attachment")] == [
        k for k in categories(whole) if k != "attachment point"
    ]
    assert all((k == "attachment bracket") == (t in "<>") for t, k in zip(parts, kinds))
    assert kinds.count("attachment bracket") == 2 * categories(whole).count("attachment point")
    assert "attachment label" in kinds


@pytest.mark.parametrize("token", ["<mask>", "<bos>", "junction", "", "<a>", "[", "12", " "])
def test_other_tokens_are_refused(token):
    with pytest.raises(ValueError, match="not a token of bracket SAFE"): categories(["C", token])


@pytest.mark.parametrize("smiles", SMILES)
def test_counts_of_kinds_give_atoms_and_bonds(smiles):
    kinds, mol = categories(tokenize(to_bracket_safe(smiles))), molecule_of(tokenize(smiles))
    n = {k: kinds.count(k) for k in CATEGORIES}
    atoms = n["aromatic atom"] + n["aliphatic atom"]
    assert n["aromatic atom"] == sum(a.GetIsAromatic() for a in mol.GetAtoms()) and atoms == mol.GetNumAtoms()
    assert mol.GetNumBonds() == atoms - 1 - n["fragment separator"] + (n["ring closure"] + n["attachment point"]) / 2


def test_normalised_times():
    assert normalised_times(clock(BORN)) == pytest.approx(BORN, abs=1e-14)
    assert normalised_times([5 * v for v in clock(BORN)], slowest=0.2) == pytest.approx(BORN, abs=1e-14)
    assert normalised_times([3, 1, 2], "rank") == [1, 0, 0.5]
    assert normalised_times([2.0]) == normalised_times([2.0], "rank") == [0.5]
    assert normalised_times([]) == []
    assert normalised_times([1.0, 1.0]) == [0.5, 0.5]
    with pytest.raises(ValueError, match="scale='steps'"): normalised_times([1.0], "steps")
    with pytest.raises(ValueError, match="slowest=0"): normalised_times([1.0], slowest=0)


def test_times_by_kind():
    vocabulary, samples = by_hand()
    got = category_times(samples, vocabulary, "inserted")
    wanted = {
        "ring closure": [0, 0], "fragment separator": [0.6], "aromatic atom": [0, 0.2, 0.2, 0.2, 0.2],
        "attachment point": [0.4, 1], "aliphatic atom": [0.8], "all tokens": BORN,
    }
    assert list(got) == list(wanted) and all(got[k] == [pytest.approx(v, abs=1e-14)] for k, v in wanted.items())


def test_prompts_are_left_out_but_read():
    tokens = ["C", "<", "1", ">"]
    vocabulary = Vocabulary(sorted(tokens))
    samples = Samples(
        [vocabulary.encode(tokens)],
        [[False, False, True, True]],
        trajectories=[Trajectory([], [0, 0, 1, 2], [0, 0, 3, 4])],
    )
    assert sample_categories(samples, vocabulary) == [["attachment label", "attachment bracket"]]
    assert category_times(samples, vocabulary, scale="rank") == {
        "attachment bracket": [[1]],
        "attachment label": [[0]],
        "all tokens": [[0, 1]],
    }


def test_empty_sequences():
    nothing = Samples([[], []], [[], []], trajectories=[Trajectory([], [], [])] * 2)
    assert category_times(nothing, Vocabulary(["C"])) == {} and order_table(nothing, Vocabulary(["C"])).times == {}
    assert state_lines(nothing, 0, Vocabulary(["C"])) == []
    with pytest.raises(ValueError, match="no values"): structure_lead(nothing, Vocabulary(["C"]))


def test_summary_of_unequal_groups():
    s = summarise([[0.0], [1.0, 1.0]])
    assert (s.mean, s.error, s.tokens, s.molecules) == (pytest.approx(2 / 3), pytest.approx(4 / 9), 3, 2)
    assert s.deviation == pytest.approx(math.sqrt(2) / 3)
    assert math.isnan(summarise([[0.1, 0.2]]).error)


def test_table_and_lead():
    vocabulary, samples = by_hand()
    table = order_table(samples, vocabulary, "inserted")
    assert table.times["aromatic atom"].mean == pytest.approx(0.16) and table.ranks["all tokens"].mean == 0.5
    text = table._repr_markdown_()
    assert "0.63 ± 0.27, 0.68 ± 0.27 | 0.61 ± 0.19, 0.80 ± 0.24" in text
    assert "0.71 ± 0.26 | 0.48 ± 0.28" in text
    assert len(PAPER_TIMES) == 7
    assert structure_lead(samples, vocabulary).mean == pytest.approx(9 / 10 - (1 + 1 + 8) / 30)
    assert structure_lead(
        samples, vocabulary, early=("attachment point",), late=("ring closure",)
    ).mean == pytest.approx(0.1 - (0.7 + 1) / 2)
    with pytest.raises(ValueError, match="kind 'rings'"): structure_lead(samples, vocabulary, early=("rings",))


def test_no_preference_is_rank_one_half_for_every_kind():
    texts = [to_bracket_safe(s) for s in SMILES[:4]] * 60
    vocabulary, g = vocabulary_of(texts), torch.Generator().manual_seed(4)
    rows = [vocabulary.encode(tokenize(t)) for t in texts]
    tracks = [
        Trajectory([], *(v[0].tolist() for v in sample_event_taus(torch.ones(1, len(r)), torch.ones(1, len(r)), g)))
        for r in rows
    ]
    samples = Samples(rows, [[True] * len(r) for r in rows], trajectories=tracks)
    for event in ("inserted", "unmasked"):
        ranks = {k: v for k, v in order_table(samples, vocabulary, event).ranks.items() if k != "all tokens"}
        lead = structure_lead(samples, vocabulary, event)
        assert max(abs(r.mean - 0.5) / r.error for r in ranks.values()) < 4
        assert abs(lead.mean / lead.error) < 4
        assert len(ranks) == 6


@pytest.mark.parametrize("smiles", SMILES)
@pytest.mark.parametrize("seed", [None, 0, 1])
def test_atoms_are_in_the_order_of_their_tokens(smiles, seed):
    tokens = tokenize(to_bracket_safe(smiles, seed=seed))
    mol, places = molecule_of(tokens), atom_tokens(tokens)
    assert Chem.CanonSmiles(Chem.MolToSmiles(mol)) == Chem.CanonSmiles(smiles) and mol.GetNumAtoms() == len(places)
    for atom, i in zip(mol.GetAtoms(), places):
        symbol = atom.GetSymbol().lower() if atom.GetIsAromatic() else atom.GetSymbol()
        assert tokens[i].strip("[]0123456789+-@").removesuffix("H" if symbol != "H" else "").rstrip("@") == symbol


def test_hydrogens_that_are_written_stay_atoms(): assert molecule_of(["[H]", "O", "[H]"]).GetNumAtoms() == 3


@pytest.mark.parametrize("text", ["c1ccccc1<1>", "C(C", "C<1>.C<1>.C<1>", "F(C)(C)C"])
def test_texts_that_are_no_molecule(text):
    with pytest.raises(ValueError, match=r"^'"): molecule_of(tokenize(text))


def test_states_follow_from_two_times():
    vocabulary, samples = by_hand("C=O")
    samples.trajectories = [Trajectory([], [0.1, 0.3, 0.1], [0.2, 0.4, 0.5])]
    wanted = [["_", "", "_"], ["C", "", "_"], ["C", "_", "_"], ["C", "=", "_"], ["C", "=", "O"]]
    assert state_lines(samples, 0, vocabulary) == list(zip([0.1, 0.2, 0.3, 0.4, 0.5], wanted))
    assert [m for m, _ in state_lines(samples, 0, vocabulary, 2)] == [0.1, 0.5]


def untrained(text=TEXT, **options):
    torch.manual_seed(0)
    return LoFlexMDM(
        vocabulary_of([text]), LoFlexMDMConfig(size="nano", order_size="nano", max_length=16, **options)
    ).eval()


def test_on_a_model():
    model = untrained()
    drawn = generate(model, n=12, generator=torch.Generator().manual_seed(0), record=True)
    word = lambda t: "_" if t == MASK else model.vocabulary.tokens[t]
    for i, track in enumerate(drawn.trajectories):
        frames = dict(track.frames)
        assert all(
            [w for w in row if w] == [word(t) for t in frames[now]]
            for now, row in state_lines(drawn, i, model.vocabulary, 1000)
            if now in frames
        )
    table = order_table(drawn, model.vocabulary, slowest=float(model.slowest))
    assert (
        table.times["all tokens"].tokens
        == sum(map(len, drawn.sequences))
        == sum(s.tokens for k, s in table.times.items() if k != "all tokens")
    )
    kept = keep(drawn, flags := decodable(drawn, model.vocabulary))
    assert len(kept) == sum(flags) == len(kept.trajectories) and kept.network_calls == drawn.network_calls


def test_decodable_means_one_molecule():
    vocabulary, samples = by_hand()
    ids = samples.sequences[0]
    point = ids[7]
    # whole, unpaired, two molecules, methane, nothing, thrice
    rows = [ids, ids[:-1], ids[:7] + ids[8:10], ids[-2:-1], [], [*ids, point]]
    assert decodable(Samples(rows, rows), vocabulary) == [True, False, False, True, False, False]
    assert keep(Samples([[1], [2]], [[True], [True]]), iter([False, True])).sequences == [[2]]
    with pytest.raises(ValueError, match="which: 1 for 2"): keep(Samples([[], []], [[], []]), [True])


def test_rates_by_kind():
    texts = [to_bracket_safe(s) for s in SMILES[:4]]
    vocabulary = vocabulary_of(texts)
    fixed = LoFlexMDM(vocabulary, LoFlexMDMConfig(order="fixed", size="nano", order_size="nano", max_length=64))
    assert all(s.mean == 0 for s in category_rates(fixed, texts).values())
    learned = LoFlexMDM(vocabulary, LoFlexMDMConfig(size="nano", order_size="nano", max_length=64)).eval()
    one, many = category_rates(learned, texts, batch_size=1), category_rates(learned, texts)
    assert one.keys() == many.keys() and all(one[k].mean == pytest.approx(many[k].mean, abs=1e-5) for k in one)
    assert sum(s.tokens for s in many.values()) == sum(len(tokenize(t)) for t in texts)


class ByToken:
    "A schedule that depends on the token alone; special tokens get a b that would be noticed."
    device = "cpu"
    def __init__(self, vocabulary): self.vocabulary = vocabulary
    def schedule(self, x):
        b = torch.tensor([1e6] * 3 + [2.0 ** CATEGORIES.index(k) for k in categories(self.vocabulary.tokens[3:])])[
            x.tokens
        ]
        return b, torch.ones_like(b)


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_rates_of_a_known_schedule(batch_size):
    texts = [to_bracket_safe(s) for s in SMILES]
    rates = category_rates(ByToken(vocabulary_of(texts)), texts, batch_size)
    assert len(rates) == 6 and all(s.mean == pytest.approx(CATEGORIES.index(k) * math.log(2)) for k, s in rates.items())


def test_rates_with_split_attachments():
    model = LoFlexMDM(
        Vocabulary(["<", ">", "1", "C", "."]), LoFlexMDMConfig(size="nano", order_size="nano", max_length=16)
    ).eval()
    assert {k: s.tokens for k, s in category_rates(model, ["C<1>.C<1>"]).items()} == {
        "fragment separator": 1, "attachment bracket": 4, "attachment label": 2, "aliphatic atom": 2,
    }


def test_rates_refuse():
    model = untrained()
    with pytest.raises(ValueError, match="texts: none"): category_rates(model, [])
    with pytest.raises(ValueError, match=r"\[Fe\]"): category_rates(model, ["C[Fe]"])
    with pytest.raises(ValueError, match="no schedule"): category_rates(object(), ["C"])


def test_no_trajectories():
    vocabulary, samples = by_hand()
    samples.trajectories = None
    for fn in (category_times, order_table, structure_lead):
        with pytest.raises(ValueError, match="record=True"): fn(samples, vocabulary)
    with pytest.raises(ValueError, match="record=True"): state_lines(samples, 0, vocabulary)


@pytest.fixture
def axes():
    import matplotlib.pyplot as plt
    yield plt.subplots(1, 2)[1]
    plt.close("all")


def test_generation_pictures(axes):
    vocabulary, samples = by_hand(fixed=3)
    assert list(plot_generation(samples, 0, vocabulary, axes=axes)) == list(axes)
    written = [t.get_text() for t in axes[0].texts]
    assert all(t in written for t in tokenize(TEXT)) and len(axes[1].images) == 1
    shown = axes[1].images[0].get_array()
    coloured = (np.ptp(np.asarray(shown)[..., :3], axis=-1) > 0.05).mean()
    bare = plot_molecule(tokenize(TEXT), [math.nan] * 11, 420, 170, ax=axes[0]).images[-1].get_array()
    assert coloured > 0.01 > (np.ptp(np.asarray(bare)[..., :3], axis=-1) > 0.05).mean()
    assert plot_states(samples, 0, vocabulary, ax=axes[0]) is axes[0]


def test_prompts_have_no_time_in_pictures(axes, monkeypatch):
    vocabulary, samples = by_hand(fixed=3)
    seen = []
    monkeypatch.setattr("loflexmdm.molecules.orders.plot_molecule", lambda tokens, values, *rest: seen.extend(values))
    plot_generation(samples, 0, vocabulary, axes=axes)
    assert all(map(math.isnan, seen[:3])) and seen[3:] == pytest.approx(BORN[3:], abs=1e-14)


def test_generation_of_what_is_no_molecule(axes):
    vocabulary, samples = by_hand("C<1>", [0.0, 1.0])
    plot_generation(samples, 0, vocabulary, axes=axes)
    assert "attachment used once" in axes[1].texts[0].get_text() and not axes[1].images
    with pytest.raises(ValueError, match="0 values for 1"): plot_molecule(["C"], [])
