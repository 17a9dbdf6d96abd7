"Ordered edits: padding, alignments, sources of every kind, kept tokens, results, resuming, the command line."
import math
from collections import Counter
from itertools import permutations, product

import pytest
import torch
from ordered_models import VOCABULARY, sequences, with_noise

from loflexmdm.cli import main
from loflexmdm.methods.edit_flows import COUPLINGS
from loflexmdm.methods.ordered_edits import OrderedEdits, OrderedEditsConfig, EditPaths
from loflexmdm.methods.sampling import edit_sequences, generate
from loflexmdm.process.alignments import BLANK, align, edit_distance
from loflexmdm.process.plackett_luce import draw_order
from loflexmdm.process.states import ANY, BOS, MASK, Pairs, Vocabulary, collate, prefix_example
from loflexmdm.samplers import EventByEvent, EventDriven
from loflexmdm.samplers.edits_event_by_event import EventByEventEdits


pytestmark = pytest.mark.usefixtures("two_blocks")


def model(order="learned", seed=0, noise=0.5, vocabulary=VOCABULARY, **options) -> OrderedEdits:
    "A model in float64 with random weights everywhere, none at its zero start."
    torch.manual_seed(seed)
    options = dict(coupling="pairs", size="test", order_size="test", max_length=20) | options
    return with_noise(OrderedEdits(vocabulary, OrderedEditsConfig(order=order, **options)), noise)


def some_pairs() -> Pairs: return Pairs(sequences("ab|cd", "|abca", "c|b"), sequences("ab|dacb", "|bc", "c|"))


def costs_in(m: OrderedEdits, paths: EditPaths, order: torch.Tensor):
    "Costs of edit paths whose edits come in an order each."
    drawn = m.in_order(paths, m.prompts_of(paths), order, m.scores(paths))
    return m.costs(drawn, m.read_prompts(m.prompts_of(paths)))


def test_padding_changes_nothing():
    m = model()
    paths = m.edit_paths(some_pairs(), torch.Generator().manual_seed(1))
    order = draw_order(torch.zeros(paths.z0.shape), paths.free, torch.Generator().manual_seed(3))
    together = costs_in(m, paths, order)
    for i in range(3):
        alone = paths.rows(torch.tensor([i])).trim()
        own = order[i:i + 1, :int(paths.free[i].sum())].clamp_max(alone.z0.shape[1])
        costs = costs_in(m, alone, own)
        torch.testing.assert_close(together.total[i:i + 1], costs.total, atol=1e-12, rtol=0)
        torch.testing.assert_close(together.generator[i:i + 1], costs.generator, atol=1e-12, rtol=0)


def test_edit_paths_have_the_fewest_edits_and_every_alignment_alike():
    "From `ab` to `bca` there are five alignments with three edits; 4,000 draws have each within 4.5 standard errors."
    pairs = Pairs(sequences("|ab"), sequences("|bca"))
    edits, log_count = edit_distance(*pairs)
    paths = model().edit_paths(pairs.map(lambda v: v.repeat(4000, 1)), torch.Generator().manual_seed(0))
    assert (paths.free.sum(-1) == edits).all()
    found = Counter(zip(map(tuple, paths.z0.tolist()), map(tuple, paths.z1.tolist())))
    p = 1 / len(found)
    assert len(found) == round(log_count.exp().item())
    assert all(abs(n - 4000 * p) < 4.5 * (4000 * p * (1 - p)) ** 0.5 for n in found.values())


# every optimal alignment of a source with a target, written as two rows
ALIGNMENTS = {"ab > ca": ["ab/ca", "_ab/ca_"], "aa > a": ["aa/a_", "aa/_a"], "a > b": ["a/b"],
              "abc > bca": ["abc_/_bca"]}


@torch.no_grad()
@pytest.mark.parametrize("text", ALIGNMENTS)
def test_a_bound_counts_all_optimal_alignments(text):
    "Values of single paths: -log p of alignment and order, less the log of how many alignments and orders there are."
    m, (source, target) = model("uniform", noise=0.3), text.split(" > ")
    known = []
    for rows in ALIGNMENTS[text]:
        z0, z1 = ([[BOS] + [BLANK if c == "_" else VOCABULARY.index[c] for c in row]] for row in rows.split("/"))
        z0, z1 = torch.tensor(z0), torch.tensor(z1)
        paths = EditPaths(z0, z1, z0 == BOS, torch.zeros_like(z0, dtype=torch.bool))
        for order in permutations(paths.free[0].nonzero()[:, 0].tolist()):
            costs = costs_in(m, paths, torch.tensor([order]))
            known.append(-costs.log_p.item() - math.log(len(ALIGNMENTS[text]) * math.factorial(len(order))))
    pairs = Pairs(sequences(f"|{source}"), sequences(f"|{target}")).map(lambda v: v.repeat(100, 1))
    found = m.tight_bound(pairs, 1, torch.Generator().manual_seed(0)).tolist()
    assert sorted({round(v, 9) for v in found}) == pytest.approx(sorted(known), abs=1e-8)


def test_what_a_way_shows():
    paths = EditPaths(*align(sequences("|abc"), sequences("|adc")))
    assert paths.tokens.tolist() == [[2, 3, 6, 5]] and paths.free.tolist() == [[False, False, True, False]]
    assert paths.seen.fixed.tolist() == [[True, True, False, True]] and paths.lengths.tolist() == [4]
    gone = EditPaths(*align(sequences("|ab"), sequences("|a")))
    assert gone.tokens.tolist() == [[2, 3, 4]] and (gone.z1 == BLANK).tolist() == [[False, False, True]]


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_every_source_is_learned_from_and_edited(coupling):
    m = model(coupling=coupling, tokens=3)
    pairs = some_pairs().map(lambda v: v.repeat(8, 1))
    batch = pairs if coupling == "pairs" else pairs.x1
    m.loss(batch, torch.Generator().manual_seed(0)).loss.backward()
    for part in (m.backbone.pointer, m.order, m.token):
        assert sum(p.grad.abs().sum() for p in part.parameters() if p.grad is not None) > 1e-3
    assert m.nll_bound(batch, 4, torch.Generator().manual_seed(0))[0].isfinite().all()
    if coupling in ("pairs", "corrupted"):
        with pytest.raises(ValueError, match="use edit"): generate(m, n=1)
    else:
        assert len(generate(m, n=5, seed=0)) == 5
    if coupling in ("empty", "masks"):
        with pytest.raises(ValueError, match="to edit sequences"): edit_sequences(m, [["a"]])
    else:
        assert len(edit_sequences(m, [["a", "b"]], n=5, seed=0)) == 5


def test_no_mask_of_a_source_is_left():
    "However likely the end is, it waits until every mask is replaced or deleted."
    m = model(coupling="masks", tokens=3, noise=0.3)
    with torch.no_grad(): m.backbone.pointer.stop.bias += 20.0
    made = generate(m, n=40, seed=0)
    assert not any(MASK in s for s in made.sequences) and made.network_calls > 3


def test_the_wrong_kind_of_data_is_refused():
    with pytest.raises(ValueError, match="the data are pairs"): model(coupling="corrupted").loss(some_pairs())
    with pytest.raises(ValueError, match="the data are single sequences"): model().loss(some_pairs().x1)


def test_what_is_kept_stays():
    m = model(noise=0.3)
    made = edit_sequences(m, [list("abcd")], keep=[[True, True, False, True]], n=60, seed=0)
    texts = ["".join(VOCABULARY.decode(s)) for s in made.sequences]
    assert all(t.startswith("ab") and "d" in t for t in texts) and len(set(texts)) > 5
    assert not any(MASK in s for s in made.sequences)


def test_a_token_is_not_replaced_by_itself():
    "With one token there is nothing to write in place of another: it is inserted and deleted alone."
    m = model(vocabulary=Vocabulary("a"), order="uniform", noise=0.3)
    made = edit_sequences(m, [list("aa")], n=40, seed=0, record=True)
    happened = [e for path in made.trajectories for e in path.edits()]
    assert any(e["delete"] for e in happened) and not any(e["substitute"] for e in happened)
    several = edit_sequences(model(noise=0.3), [list("ab")], n=100, seed=0, record=True)
    changed = [e["substitute"] for path in several.trajectories for e in path.edits()]
    frames = sum(len(path.frames) - 1 for path in several.trajectories)
    assert any(changed) and frames == sum(len(path.edits()) for path in several.trajectories)
    assert all(any(e.values()) for path in several.trajectories for e in path.edits())


@pytest.mark.slow
def test_conditions_are_read_and_guided_and_kept():
    "Both lead from `ab`, to `aa` and to `bb`."
    vocabulary = Vocabulary(["a", "b", "<c:1>", "<c:2>", ANY])
    torch.manual_seed(0)
    config = OrderedEditsConfig(coupling="pairs", size="test", order="uniform", orders=1, max_length=8)
    m = OrderedEdits(vocabulary, config)
    side = lambda *texts: collate([prefix_example([c], t, vocabulary) for c, t in zip(["<c:1>", "<c:2>"], texts)] * 8)
    pairs, adam = Pairs(side("ab", "ab"), side("aa", "bb")), torch.optim.Adam(m.parameters(), 1e-2)
    for step in range(80):
        adam.zero_grad()
        m.loss(pairs, torch.Generator().manual_seed(step)).loss.backward()
        adam.step()
    for w, (condition, target) in product((0.0, 1.0), (("<c:1>", "aa"), ("<c:2>", "bb"))):
        made = edit_sequences(m, [[condition, "a", "b"]], keep=[[True, False, False]], n=50, seed=0, guidance=w)
        texts = Counter("".join(vocabulary.decode(s)) for s in made.sequences)
        assert texts.most_common(1)[0][0] == condition + target and all(t.startswith(condition) for t in texts)


def test_lengths_end_at_the_largest():
    m = model(noise=0.3, max_length=6)
    with torch.no_grad(): m.backbone.pointer.stop.bias -= 4.0
    made = edit_sequences(m, [list("abcd")], n=60, seed=0)
    assert max(map(len, made.sequences)) <= m.most_columns(6) - 1 and made.overflow > 0


def test_what_is_refused():
    m = model()
    with pytest.raises(ValueError, match="is for methods whose events come at rates"):
        edit_sequences(m, [["a"]], sampler=EventDriven())
    with pytest.raises(ValueError, match="takes EventByEventEdits"): edit_sequences(m, [["a"]], sampler=EventByEvent())
    with pytest.raises(ValueError, match="has no clock"): m.intensities(None)
    with pytest.raises(ValueError, match="max_length"): OrderedEditsConfig(coupling="uniform", tokens=9, max_length=9)


@pytest.mark.slow
def test_at_the_command_line(tmp_path, capsys, monkeypatch):
    "A user's texts with errors; the model edits a file of theirs, and says what it is."
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.txt").write_text("\n".join(map("".join, product("abcd", repeat=4))))
    (tmp_path / "mine.txt").write_text("abca\nbb\n")
    (tmp_path / "my.toml").write_text(
        "[task]\nkind = \"repair\"\ninner = \"text\"\nsettings = \"file = 'words.txt', unit = 'characters'\"\n"
        '[model]\nmethod = "ordered-edits"\ncoupling = "pairs"\nsize = "test"\norder_size = "test"\n'
        "[train]\nsteps = 4\n")
    run = str(tmp_path / "run")
    assert main(["train", str(tmp_path / "my.toml"), "--out", run]) == 0
    made = str(tmp_path / "edited.jsonl")
    options = ["--sampler", EventByEventEdits.name, "--temperature", "0.8"]
    assert main(["edit", run, "--input", str(tmp_path / "mine.txt"), "--out", made, "-n", "2", *options]) == 0
    assert main(["info", run]) == 0 and "ordered-edits" in capsys.readouterr().out
