"Fill-in-the-middle against enumeration in float64: cuts, likelihood of fillings, loss, cache and samples."
import itertools
import math
from collections import Counter

import pytest
import torch

from loflexmdm.cli import main
from loflexmdm.methods.fill_in_the_middle import FillInTheMiddle, FillInTheMiddleConfig, Kinds, cut_at, draw_gaps
from loflexmdm.methods.sampling import generate
from loflexmdm.models.model import Model
from loflexmdm.networks.transformer import SIZES, Size
from loflexmdm.process.states import Vocabulary, collate, filled_example, parse_prompt, prefix_example
from loflexmdm.samplers import Limits, simulate
from loflexmdm.samplers.gap_by_gap import GapByGap, begin_layout, lay_out
from loflexmdm.support.notebook import seeded

VOCABULARY = Vocabulary("ab")
STRINGS = ["".join(s) for n in range(4) for s in itertools.product("ab", repeat=n)]
PROMPTS = {"inner": ["a", ..., "b"], "end": ["a", ...], "start": [..., "b"], "two": ["a", ..., "b", ...]}


@pytest.fixture(autouse=True)
def pico(monkeypatch): monkeypatch.setitem(SIZES, "pico", Size(16, 2, 2, 8))


def shaken(seed=1, scale=0.3, **settings):
    "A small model with random parameters everywhere, in float64: fresh gates would let checks pass trivially."
    torch.manual_seed(0)
    config = FillInTheMiddleConfig(**dict(size="pico", max_length=12, gaps=3) | settings)
    model, g = FillInTheMiddle(VOCABULARY, config).double().eval(), seeded(seed)
    with torch.no_grad():
        for p in model.parameters(): p.add_(scale * torch.randn(p.shape, generator=g, dtype=p.dtype))
    return model


def filled(prompt, *fillings): return collate([filled_example(prompt, fillings, VOCABULARY)])
def whole(*texts): return collate([prefix_example("", s, VOCABULARY) for s in texts])


# cuts

def cuts_of(places: int, gaps: int, at_start: bool, at_end: bool):
    "All cuts of a kind."
    for ends in itertools.product(range(places), repeat=2 * gaps):
        pairs = list(zip(ends[::2], ends[1::2]))
        ordered = all(a <= b for a, b in pairs) and all(b < c for (_, b), (c, _) in zip(pairs, pairs[1:]))
        if ordered and not (at_start and ends[0]) and not (at_end and ends[-1] < places - 1): yield tuple(pairs)


def weights_of(places: int, longest: int, most: int) -> Counter:
    "Weight of every cut, by enumeration."
    found = Counter()
    for g, s, e in itertools.product(range(1, most + 1), (False, True), (False, True)):
        p = 0.5 ** (g if g < most else most - 1) * (0.25 if s else 0.75) * (0.25 if e else 0.75)
        of_longest = len(list(cuts_of(longest, g, s, e)))
        for gaps in cuts_of(places, g, s, e): found[gaps] += p / of_longest
    return found


@pytest.mark.parametrize("most", [1, 2, 3])
def test_cuts_have_the_weights_of_the_enumeration(most):
    n = 8000
    drawn, weight = draw_gaps(torch.tensor([2, 4]).repeat(n), most, seeded(most))
    for k, places in enumerate((2, 4)):
        exact = weights_of(places, 4, most)
        assert weight[k].item() == pytest.approx(sum(exact.values()), abs=1e-12)
        cuts = Counter(tuple(tuple(g) for g in gaps if g[0] >= 0) for gaps in drawn[k::2].tolist())
        assert set(cuts) <= set(exact)
        expected = {gaps: n * w / weight[k].item() for gaps, w in exact.items()}
        square = sum((cuts[g] - e) ** 2 / e for g, e in expected.items())
        assert square < len(exact) - 1 + 5 * math.sqrt(2 * len(exact))


def test_no_prompt_is_seen_more_often_with_shorter_sequences():
    weight = {}
    for text in "ab", "aab", "abbb", "aaabb":
        for gaps, w in weights_of(len(text) + 1, 6, 2).items():
            x = cut_at(whole(text), torch.tensor([gaps]))
            given = tuple(zip(x.tokens[x.fixed].tolist(), x.open[x.fixed].tolist()))
            weight.setdefault((given, len(gaps)), []).append(w)
    several = [w for w in weight.values() if len(w) > 1]
    assert len(several) > 20 and all(max(w) - min(w) < 1e-12 for w in several)


def test_conditions_are_no_prompt_and_given_tokens_are():
    model = shaken()
    prompt = filled(["a", ..., "b"], "ab")
    kept, weight = model.cut(prompt, seeded(0))
    assert all(torch.equal(a, b) for a, b in zip(kept[:3], prompt[:3])) and weight.item() == 1
    conditional = FillInTheMiddle(Vocabulary(["a", "b", "<x:1>", "<any>"]), FillInTheMiddleConfig(size="pico", cut=1.0))
    example = prefix_example([], "abab", conditional.vocabulary)
    row = collate([example._replace(
        tokens=[2, conditional.vocabulary.index["<x:1>"], *example.tokens[1:]], fixed=[True, *example.fixed],
        closed=[True, *example.closed],
    )] * 64)
    cut, _ = conditional.cut(row, seeded(1))
    assert cut.fixed[:, :2].all() and not cut.open[:, 0].any() and (cut.fixed[:, 2:] != row.fixed[:, 2:]).any()


# likelihood

@torch.no_grad()
def one_by_one(model, prompt, fillings) -> float:
    "log p from a pass for each outcome."
    rows, total = begin_layout(collate([parse_prompt(prompt, VOCABULARY)])), 0.0
    for k, filling in enumerate(fillings):
        for outcome in [*VOCABULARY.encode(filling), model.end]:
            total += model.intensities(rows.x).logits[0, -1].log_softmax(-1)[outcome].item()
            if outcome != model.end: rows = rows.with_column(torch.tensor([outcome]))
        if k + 1 < len(fillings): rows = rows.with_column(torch.tensor([1]))
    return total


@pytest.mark.parametrize("name, fillings", [
    ("inner", ["ba"]), ("inner", [""]), ("end", ["abb"]), ("start", ["a"]), ("two", ["ba", "b"]), ("two", ["", ""]),
])
def test_teacher_forcing_is_the_product_of_conditionals(name, fillings):
    model = shaken(5)
    got = model.log_prob(filled(PROMPTS[name], *fillings)).item()
    assert got == pytest.approx(one_by_one(model, PROMPTS[name], fillings), abs=1e-12)


@pytest.mark.parametrize("name", PROMPTS)
def test_fillings_sum_to_one(name):
    model, prompt = shaken(), PROMPTS[name]
    ended, longer = 0.0, 0.0
    for fillings in itertools.product(STRINGS, repeat=prompt.count(...)):
        with torch.no_grad(): log_p, counted = (v[0] for v in model.log_probs(filled(prompt, *fillings)))
        outcomes, at = log_p[counted], 0
        assert len(outcomes) == sum(map(len, fillings)) + len(fillings)
        ended += outcomes.sum().exp().item()
        for g, filling in enumerate(fillings):
            at += len(filling)
            goes_on = len(filling) == 3 and not any(fillings[g + 1:])
            if goes_on: longer += (outcomes[:at].sum().exp() * (1 - outcomes[at].exp())).item()
            at += 1
    assert ended + longer == pytest.approx(1, abs=1e-12) and 0.5 < ended < 1


def test_padding_and_other_rows_change_nothing():
    model = shaken()
    cases = [filled_example(p, ["ab"] * p.count(...), VOCABULARY) for p in PROMPTS.values()]
    alone = torch.cat([model.log_prob(collate([c])) for c in cases])
    torch.testing.assert_close(model.log_prob(collate(cases)), alone, rtol=0, atol=1e-12)


def test_a_sequence_that_was_cut_off_has_no_end():
    model, x = shaken(), whole("ab")
    log_p, counted = model.log_probs(x._replace(closed=torch.tensor([[False, False, True]])))
    assert counted.sum() == 2 and model.log_prob(x).item() < log_p.sum().item()


def test_the_loss_is_the_weighted_mean_over_cuts():
    model, texts, n = shaken(gaps=1), ("ab", "bba"), 6000
    exact, square = [], []
    for text in texts:
        x, share = whole(text), model.config.cut
        cost = {g: -model.log_prob(cut_at(x, torch.tensor([g]))).item() for g in weights_of(len(text) + 1, 4, 1)}
        weights, plain = weights_of(len(text) + 1, 4, 1), -model.log_prob(x).item()
        total = sum(weights.values())
        exact.append(share * sum(w * cost[g] for g, w in weights.items()) + (1 - share) * plain)
        square.append(share * sum(total * w * cost[g] ** 2 for g, w in weights.items()) + (1 - share) * plain**2)
    with torch.no_grad():
        loss = model.loss(whole(*texts).rows(torch.arange(2).repeat(n)), seeded(2)).loss.item()
    error = sum(s - e * e for s, e in zip(square, exact)) ** 0.5 / 2 / n**0.5
    assert abs(loss - sum(exact) / 2) < 4 * error < 0.2


def test_the_loss_without_cuts_is_the_likelihood():
    model, x = shaken(cut=0.0), whole("ab", "", "bbb")
    assert model.loss(x).loss.item() == pytest.approx(model.nll_bound(x)[0].mean().item(), abs=1e-12)


# samples

class Beside:
    "Calls the cache and the plain network, and keeps the largest difference."
    def __init__(self, model): self.model, self.error, self.calls = model, 0.0, 0
    def read(self, x, tau, kept):
        out, kept = self.model.read(x, tau, kept)
        plain = self.model.intensities(x).logits
        last = plain[torch.arange(len(x.tokens))[:, None], x.lengths[:, None] - 1]
        self.error = max(self.error, (out.logits - last)[..., 3:].abs().max().item())
        self.calls += 1
        return out, kept


def test_cached_logits_are_those_of_the_whole_layout():
    both = Beside(shaken())
    rows = collate([parse_prompt(p, VOCABULARY) for p in [*PROMPTS.values(), [], ["b"]]] * 8)
    with torch.no_grad(): simulate(both, rows, GapByGap(), range(48), Limits(99.0, 12, channels=("fill",)))
    assert both.error < 1e-12 and both.calls > 4


@pytest.mark.slow
@pytest.mark.parametrize("name", PROMPTS)
def test_samples_have_the_probabilities_of_the_model(name):
    model, prompt, n = shaken(), PROMPTS[name], 3000
    gaps = prompt.count(...)
    with torch.no_grad():
        law = {f: model.log_prob(filled(prompt, *f)).exp().item() for f in itertools.product(STRINGS[:7], repeat=gaps)}
    drawn = generate(model, [prompt], n=n, seed=4, record=True)
    found = Counter()
    for ids, free in zip(drawn.sequences, drawn.free):
        parts = "".join("|" if not f else VOCABULARY.tokens[t] for t, f in zip(ids, free)).split("|")
        found[tuple(parts[1:] if prompt[0] is not ... else parts[:1])[:gaps]] += 1
    for fillings, p in law.items():
        z = (found[fillings] - n * p) / math.sqrt(n * p * (1 - p))
        assert abs(z) < 4.5 or n * p < 5
    assert all(t.frames[-1][1] == ids for t, ids in zip(drawn.trajectories, drawn.sequences))


def test_limits_are_kept():
    model = shaken()
    long = generate(model, list(PROMPTS.values()), n=30, seed=0, min_length=6, max_length=7)
    assert {len(s) + 1 for s in long.sequences} <= {6, 7} and long.forced and long.overflow


def test_what_cannot_be_filled_is_refused():
    model = shaken(gaps=1)
    with pytest.raises(ValueError, match="gaps=1"): generate(model, [["a", ..., "b", ...]])
    with pytest.raises(ValueError, match="gaps=1"): model.log_prob(filled(["a", ..., "b", ...], "", ""))
    with pytest.raises(ValueError, match="mask"): generate(model, [["a", "<mask>"]])
    with pytest.raises(ValueError, match="mask"): begin_layout(collate([parse_prompt(["<mask>"], VOCABULARY)]))
    with pytest.raises(ValueError, match="mask"): model.log_prob(lay_out(filled(["a", ...], "b")))
    with pytest.raises(ValueError, match="fillings: 2 given"): filled(["a", ...], "a", "b")


# the package

def test_a_model_scores_fillings():
    model = Model(shaken())
    scores = model.score_fillings(["a", ..., "b"], [[["a", "b"]], [[]]])
    expected = torch.cat([model.method.log_prob(filled(["a", ..., "b"], f)) for f in ("ab", "")])
    torch.testing.assert_close(scores.nats, -expected)
    assert not scores.error.any()
    with pytest.raises(ValueError, match="tokens"): model.score_fillings(["a", ...], [["ab" * 9]])


def test_the_command_line_trains_and_fills(tmp_path, capsys):
    out = str(tmp_path / "run")
    short = ["--steps", "3", "--batch-size", "4", "--size", "nano", "--device", "cpu"]
    assert not main(["train", "brackets", "--method", "fim", "--cut", "0.5", "--out", out, *short])
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("( ... )\n")
    assert not main(["sample", out, "--prompts", str(prompts), "-n", "3", "--seed", "0"])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("(")]
    assert len(lines) == 3 and all(line.removesuffix(" =>").endswith(")") for line in lines)


@pytest.mark.parametrize("most", [1, 2, 3])
def test_kinds_of_cuts_have_their_probabilities(most):
    "Each further gap has probability 1/2, each end 1/4."
    kinds = Kinds.of(most)
    p = kinds.log_p.exp()
    assert p.sum() == pytest.approx(1) and p.dtype == torch.float64
    for at_end in (kinds.at_start, kinds.at_end): assert p[at_end > 0].sum() == pytest.approx(0.25)
    for n in range(1, most + 1):
        assert p[kinds.gaps == n].sum() == pytest.approx(0.5 ** min(n, most - 1)), "the last number takes the rest"
