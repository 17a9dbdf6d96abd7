"Edit Flows: targets and bounds by hand and against exact laws, prompts, editing, trajectories, training on pairs."
import math
from collections import Counter
from itertools import product

import pytest
import torch
from torch.testing import assert_close

from loflexmdm import cli
from loflexmdm.exact.ctmc import clock_quadrature
from loflexmdm.exact.edit_laws import EditLaw, edit_bounds, edit_oracle
from loflexmdm.methods.base import Method
from loflexmdm.methods.edit_flows import EDITS, EditFlow, EditFlowConfig, EditTargets, beside
from loflexmdm.methods.edit_flows import edit_targets, edit_terms, merge_cost
from loflexmdm.methods.masked import MaskedConfig, MaskedDiffusion
from loflexmdm.methods.sampling import edit_sequences, generate
from loflexmdm.models.saved import load_method
from loflexmdm.process.alignments import BLANK, Aligned, align, at
from loflexmdm.process.intensities import Intensities
from loflexmdm.process.states import BOS, PAD, Pair, Pairs, Vocabulary, collate, parse_prompt
from loflexmdm.process.states import prefix_example
from loflexmdm.samplers import EditTrajectory, EventDriven, Limits, TauLeaping, Trajectory, simulate
from loflexmdm.support.notebook import seeded
from loflexmdm.tasks.base import Examples
from loflexmdm.training.optimisers import TrainConfig
from loflexmdm.training.trainer import Trainer

LETTERS = Vocabulary("abc")
A, B, C = LETTERS.encode("abc")
LEAPS = TauLeaping(steps=12)

pytestmark = pytest.mark.usefixtures("pico")


def words(*texts, prompt=""): return collate([prefix_example(prompt, t, LETTERS) for t in texts])


def made(scale=0.3, **settings):
    "A small model with random parameters everywhere."
    torch.manual_seed(0)
    model, g = EditFlow(LETTERS, EditFlowConfig(**dict(size="pico", max_length=10) | settings)), seeded(1)
    with torch.no_grad():
        for p in model.parameters(): p.add_(scale * torch.randn(p.shape, generator=g))
    return model.eval()


def text(ids): return "".join(LETTERS.tokens[t] for t in ids)


# targets and bounds

def test_pending_edits_of_an_alignment():
    z = align(words("aab"), words("bcc"), "block")
    done = torch.tensor([[False, True, True, False, False, False, False]])
    todo = edit_targets(z, done)
    found = [(EDITS[k], c, v) for k, c, v in zip(todo.channel.tolist(), todo.column.tolist(), todo.token.tolist())]
    assert found == [("delete", 1, BLANK), ("insert", 1, B), ("insert", 1, C), ("insert", 1, C)]
    assert text(at(z, done).tokens[0, 1:].tolist()) == "b"
    assert edit_targets(z, torch.ones_like(done)).row.numel() == 0


def test_equal_tokens_in_one_gap_merge_in_the_papers_constant_alone():
    targets = EditTargets(*torch.tensor([[0, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1], [A, A, B, A]]), torch.ones(4))
    assert_close(merge_cost(targets, 2), torch.tensor([2 * math.log(2), 0.0]))
    logits = torch.zeros(2, 2, len(LETTERS)).masked_fill(torch.arange(len(LETTERS)) < 3, -torch.inf)
    terms = edit_terms(Intensities(insert=torch.full((2, 2), 6.0), insert_logits=logits), targets)
    assert_close(terms.tight, torch.tensor([12 - 3 * math.log(2) - 3, 12 - math.log(2) - 1]))
    assert_close(terms.paper - terms.tight, torch.tensor([2 * math.log(2), 0.0]))


def test_merging_costs_the_entropy_of_rates_that_are_not_1():
    "Two edits of one label, at rates 2 and 3, and one by itself, at 1/2: f log f less the sum of b log b."
    targets = EditTargets(*torch.tensor([[0, 0, 0], [0, 0, 0], [1, 1, 1], [A, A, B]]), torch.tensor([2.0, 3.0, 0.5]))
    by_hand = 5 * math.log(5) - 2 * math.log(2) - 3 * math.log(3)
    assert_close(merge_cost(targets, 1), torch.tensor([by_hand]))


def test_the_only_token_is_never_substituted():
    "There is no other to write in its place; with two tokens there is."
    for letters, possible in (("a", False), ("ab", True)):
        vocabulary = Vocabulary(letters)
        model = EditFlow(vocabulary, EditFlowConfig(size="pico", max_length=10, coupling="uniform", tokens=3)).eval()
        x = collate([prefix_example("", "aa", vocabulary)])
        out = model.intensities(x, tau=torch.tensor([0.3]))
        assert bool(out.substitute.any()) == possible and bool(out.delete.any())


def test_a_model_that_only_inserts_needs_no_room_for_a_source():
    "States have room for the target, for the source where it may be deleted, and once more where it is shown."
    rooms = {("empty", "hidden"): 1, ("empty", "shown"): 2, ("uniform", "hidden"): 2, ("uniform", "shown"): 3}
    for (coupling, source), times in rooms.items():
        assert made(coupling=coupling, source=source, tokens=3).most_columns(10) == 10 * times

    # so that what it writes is no longer than was asked for, however fast it inserts
    model = made(coupling="empty")
    with torch.no_grad(): model.insert.out.bias.fill_(9.0)
    drawn = generate(model, n=6, sampler=LEAPS, generator=seeded(0), max_length=5)
    assert max(map(len, drawn.sequences)) == 4


def test_sources_are_not_the_numbers_that_the_sampler_draws():
    "A source drawn by the row's own seed would be decided by the same numbers as its first events."
    model, n = made(coupling="uniform", tokens=8), 60
    start = model.start(collate([parse_prompt([...], LETTERS)] * n), 10)
    ours = model.sources(start, range(n))
    theirs = [model.drawn_from.draw(start.rows([i]).trim(), seeded(i)) for i in range(n)]
    same = sum(ours.rows([i]).trim().tokens.tolist() == one.trim().tokens.tolist() for i, one in enumerate(theirs))
    assert same < n / 3
    again = model.sources(start, range(n))
    assert torch.equal(again.tokens, ours.tokens)

    # which numbers they are stays, so that a seed means the same samples later
    kept = [model.drawn_from.draw(start.rows([i]).trim(), seeded(i ^ 0x1FFFFFFFFFFFFFFF)) for i in range(n)]
    assert all(ours.rows([i]).trim().tokens.tolist() == one.trim().tokens.tolist() for i, one in enumerate(kept))


@pytest.mark.parametrize("channel", ["delete", "substitute"])
def test_an_edit_of_a_channel_without_rates_is_refused(channel):
    targets = EditTargets(*(torch.tensor([v]) for v in (0, EDITS.index(channel), 1, A)), torch.ones(1))
    with pytest.raises(ValueError, match=channel):
        edit_terms(Intensities(insert=torch.ones(1, 2), insert_logits=torch.zeros(1, 2, 6)), targets)


def all_states(law):
    "Every state of a law as a batch: alignments, columns that are shown, number of the alignment."
    width, rows, shown, which = 1 + max(map(len, law.columns)), [], [], []
    for k, z in enumerate(law.columns):
        pending = [j + 1 for j, (a, b) in enumerate(z) if a != b]
        for done in product((False, True), repeat=len(pending)):
            side = lambda i, z=z: [BOS, *(pair[i] for pair in z)] + [PAD] * (width - 1 - len(z))
            rows.append([side(0), side(1)])
            shown.append([j in pending and done[pending.index(j)] for j in range(width)])
            which.append(k)
    z0, z1 = torch.tensor(rows).unbind(1)
    return Aligned(z0, z1, z0 == BOS, z0 == PAD), torch.tensor(shown), torch.tensor(which)


@pytest.mark.parametrize("pairs, how", [
    ({("", "a"): .3, ("", "ab"): .2, ("", "ba"): .2, ("", "aa"): .2, ("", "aba"): .1}, "optimal"),
    ({("ab", "b"): .2, ("ab", "abb"): .3, ("b", "aa"): .5}, "padded"),
])
def test_bounds_of_the_perfect_generator(pairs, how):
    law = EditLaw.of(pairs, how)
    z, shown, which = all_states(law)
    x, targets, oracle, total = at(z, shown), edit_targets(z, shown), edit_oracle(law), torch.zeros(2).double()
    targets = targets._replace(rate=targets.rate.double())
    for tau, weight in zip(*clock_quadrature(48)):
        if tau > 60: continue
        p = torch.where(shown, -torch.expm1(-tau), torch.exp(-tau))
        p = torch.where(z.z0 != z.z1, p, 1.0).prod(-1) * law.probs[which]
        total += weight * torch.stack([(p * v).sum() for v in edit_terms(oracle(x, tau), targets)])
    assert_close(total, torch.stack([law.probs @ v for v in edit_bounds(law, nodes=48)]), rtol=1e-9, atol=1e-9)
    if how == "optimal": assert_close(total, torch.tensor([1.7420, 1.5571]).double(), rtol=0, atol=5e-5)


# sampling

def test_thinning_reaches_the_law_of_the_perfect_generator():
    pairs = {("A", "A"): .25, ("A", "B"): .25, ("B", "A"): .25, ("B", "B"): .25}
    law = EditLaw.of(pairs, "interleaved")
    oracle, n = edit_oracle(law), 600
    rows = collate([prefix_example("", "A", law.vocabulary)] * n)
    limits = Limits(40.0, 9, channels=("insert", "delete", "substitute"))
    found = simulate(oracle, rows, EventDriven(), range(n), limits)
    share = sum(law.text(s) == "A" for s in found.sequences) / n
    assert abs(share - .60394) < 4 * (.6 * .4 / n) ** 0.5 and found.violations == 0
    assert {law.text(s) for s in found.sequences} <= {"A", "B"}


@pytest.mark.parametrize("coupling, channels", [
    ("empty", ("insert",)), ("uniform", ("insert", "delete", "substitute")), ("masks", EDITS),
])
@pytest.mark.parametrize("source", ["hidden", "shown"])
def test_prompts_stay_and_rows_do_not_depend_on_the_batch(coupling, channels, source):
    model = made(coupling=coupling, tokens=3, source=source)
    assert model.channels == channels
    settings = dict(n=6, sampler=LEAPS)
    draw = lambda size: generate(model, [["a", ..., "b"], ["c"]], **settings, generator=seeded(2), batch_size=size)
    out = draw(512)
    kept = [text(t for t, f in zip(s, free) if not f) for s, free in zip(out.sequences, out.free)]
    assert kept == ["ab"] * 6 + ["c"] * 6 and all(t > 2 for s in out.sequences for t in s)
    assert draw(5).sequences == out.sequences


@pytest.mark.parametrize("source", ["hidden", "shown"])
def test_kept_tokens_are_not_edited(source):
    model = made(coupling="pairs", source=source)
    keep = [[True, True, False, True], [False, True]]
    out = edit_sequences(model, [list("abcb"), list("ca")], keep, n=20, sampler=LEAPS, generator=seeded(3), record=True)
    assert all(text(s).startswith("ab") and text(s).endswith("b") for s in out.sequences[:20])
    assert all(text(s).endswith("a") for s in out.sequences[20:])
    assert len({text(s) for s in out.sequences}) > 5
    assert [p.frames[-1][1] for p in out.trajectories] == out.sequences
    assert [text(p.frames[0][1]) for p in out.trajectories[::20]] == ["abcb", "ca"]
    assert [len(free) for free in out.free] == [len(s) for s in out.sequences]
    assert all(len(own) == len(ids) for p in out.trajectories for own, (_, ids) in zip(p.labels, p.frames))


@pytest.mark.parametrize("call, message", [
    (lambda m: edit_sequences(m, [["a"]], [[True]]), "all tokens are locked"),
    (lambda m: edit_sequences(m, [["z"]]), "outside the vocabulary"),
    (lambda m: edit_sequences(m, [["a"] * 10]), "max_length is 10"), (lambda m: edit_sequences(m, [[]]), "empty"),
    (lambda m: edit_sequences(m, [["a"]], [[]]), "keep"), (lambda m: edit_sequences(m, [["a"]], []), "keep"),
    (lambda m: edit_sequences(m, []), "sequences"),
    (lambda m: edit_sequences(m, "ab"), "sequences"), (lambda m: generate(m), "use edit"),
    (lambda m: edit_sequences(m, [["a"]], n=1.5), "n=1.5"), (lambda m: edit_sequences(m, [["a"]], n=True), "n=True"),
    (lambda m: edit_sequences(m, [["a"]], n=0), "n=0"), (lambda m: edit_sequences(made(), [["a"]]), "coupling='empty'"),
    (lambda m: edit_sequences(m, [["a"]], sampler=TauLeaping(confidence="entropy")), "ranks masks"),
    (lambda m: edit_sequences(MaskedDiffusion(LETTERS, MaskedConfig(size="pico", max_length=8)), [["a"]]), "mdm"),
    (lambda m: m.loss(words("a")), "single sequences"), (lambda m: made().loss(Pairs(words("a"), words("b"))), "pairs"),
    (lambda m: m.loss(Pairs(words("a"), words("b", prompt="a"))), "prompts"),
    (lambda m: made(alignment="best"), "alignment"),
    (lambda m: made(coupling="masks", tokens=10), "tokens=10"),
])
def test_what_is_refused(call, message):
    with pytest.raises(ValueError, match=message): call(made(coupling="pairs"))


def test_the_present_token_is_not_written_again():
    model = made(coupling="uniform", tokens=3)
    x = words("abc")
    out = model.intensities(x, tau=torch.tensor([0.5]))
    p = torch.softmax(out.logits[0, 1:], -1)
    assert (p.gather(-1, x.tokens[0, 1:, None]) == 0).all() and assert_close(p.sum(-1), torch.ones(3)) is None


def test_source_and_state_side_by_side():
    both = beside(words("ab", "c"), words("", "abc"))
    rows = [[LETTERS.tokens[t] for t in row if t != PAD] for row in both.tokens.tolist()]
    assert rows == [["<bos>", "a", "b", "<bos>"], ["<bos>", "c", "<bos>", "a", "b", "c"]]
    assert both.free.sum(-1).tolist() == [0, 3] and both.open.sum(-1).tolist() == [1, 4]


def test_every_token_is_followed():
    model = made(coupling="uniform", tokens=3)
    out = edit_sequences(model, [list("abcab")], n=20, sampler=LEAPS, generator=seeded(4), record=True)
    kinds = Counter()
    for path in out.trajectories:
        assert isinstance(path, EditTrajectory) and len(path) == 3 and len(path.labels) == len(path.frames)
        there = set(path.labels[0])
        for edits, own in zip(path.edits(), path.labels[1:]):
            there = there - set(edits["delete"]) | set(edits["insert"])
            assert there == set(own) and len(own) == len(set(own))
            kinds.update({kind: len(labels) for kind, labels in edits.items()})
        assert len(path.deletions()) == sum(len(e["delete"]) for e in path.edits())
    assert min(kinds[k] for k in ("insert", "delete", "substitute")) > 10
    plain = generate(made(), n=2, sampler=LEAPS, generator=seeded(5), record=True)
    assert all(type(path) is Trajectory for path in plain.trajectories)


# training

def test_rates_are_gated():
    "Otherwise the first losses would be millions."
    model = EditFlow(LETTERS, EditFlowConfig(size="pico", coupling="uniform", tokens=4, max_length=10))
    with torch.no_grad(): losses = [model.loss(words("ab", "abc", "") , seeded(i)).loss.item() for i in range(20)]
    assert max(losses) < 500
    far = model.intensities(words("ab"), tau=torch.tensor([1e9]))
    assert far.total().item() < 1e-20 and bool((far.insert[:, :3] > 0).all())


@pytest.mark.parametrize("source", ["hidden", "shown"])
def test_a_trainer_takes_pairs(source, tmp_path):
    example = lambda s: prefix_example("a", s, LETTERS)
    data = Examples(40, lambda i: Pair(example("bc"[i % 2]), example("cb" * (i % 3))))
    config = TrainConfig(steps=3, batch_size=4, valid_every=3, valid_size=6, valid_samples=2, save_every=2)
    trainer = Trainer(made(coupling="pairs", source=source), data, config, tmp_path / "run", data, progress=False)
    model = trainer.fit()
    found = load_method(tmp_path / "run" / "best")
    assert isinstance(found, EditFlow) and found.config == model.config and math.isfinite(trainer.best)
    settings = dict(n=4, sampler=LEAPS)
    drawn = [edit_sequences(m, [list("ab")], generator=seeded(0), **settings).sequences for m in (found, model.method)]
    assert drawn[0] == drawn[1]
    masked = MaskedDiffusion(LETTERS, MaskedConfig(size="pico", max_length=8))
    with pytest.raises(ValueError, match="pairs"): Trainer(masked, data, config, tmp_path / "other")
    assert not Method.takes_pairs


@pytest.mark.parametrize("settings", [
    dict(), dict(coupling="uniform", tokens=3), dict(coupling="masks", tokens=3, alignment="padded"),
    dict(coupling="corrupted", source="shown"), dict(times="uniform", alignment="shuffled:0.5", schedule="linear"),
])
def test_single_sequences_with_every_source(settings):
    model, batch = made(**settings).train(), words("abc", "", "b", prompt="c")
    loss = model.loss(batch, seeded(0))
    loss.loss.backward()
    assert loss.metrics["bound"] >= loss.metrics["bound_tight"] - 1e-4
    gradients = [p.grad for name, p in model.named_parameters() if p.grad is not None]
    assert len(gradients) > 10 and all(g.isfinite().all() for g in gradients)
    mean, error = model.eval().nll_bound(batch, 4, seeded(1))
    assert mean.shape == error.shape == (3,) and mean.isfinite().all()


def test_on_the_command_line(tmp_path, capsys):
    run = str(tmp_path / "run")
    quick = "--size pico --steps 2 --batch-size 4 --valid-size 4 --valid-every 2 --warmup 1 --device cpu".split()
    assert cli.main(["train", "brackets", "--method", "editflow", "--coupling", "corrupted", *quick, "--out", run]) == 0
    assert load_method(tmp_path / "run" / "best").config.errors == 2
    assert cli.main(["train", "brackets", "--method", "editflow", "--coupling", "noise", "--out", run + "2"]) == 2
    assert "coupling='noise'" in capsys.readouterr().err
