"""Exact likelihood, cached sampling and prefixes: the autoregressive method against enumeration
and through the common interface."""
import contextlib
import io
import itertools
import json
import math
import shutil
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from share import difference

from loflexmdm.cli import main
from loflexmdm.exact.ctmc import as_batch
from loflexmdm.methods.autoregressive import Autoregressive, AutoregressiveConfig, KeysAndValues
from loflexmdm.methods.lo_flexmdm import LoFlexMDM, LoFlexMDMConfig
from loflexmdm.methods.sampling import generate
from loflexmdm.networks.transformer import SIZES, Size
from loflexmdm.process.intensities import Intensities
from loflexmdm.process.states import Vocabulary, collate, parse_prompt, prefix_example
from loflexmdm.samplers import EventDriven, LeftToRight, Limits, TauLeaping
from loflexmdm.samplers import not_a_prefix, simulate
from loflexmdm.samplers.generation_order import generation_times
from loflexmdm.support.notebook import seeded
from loflexmdm.training.checkpoints import checkpoints
from loflexmdm.training.optimisers import TrainConfig
from loflexmdm.training.trainer import Trainer

VOCABULARY = Vocabulary("ab")
END = len(VOCABULARY)
PROMPTS = [[], ["a"], ["b", "b"], ["a", "b", "a"], ["b", "b", "b", "a", "a"]]
INFILLING = [["a", ..., "b"], [..., "a"], ["a", ..., "b", ...], ["a", "<mask>"], ["<mask>", ...]]


@pytest.fixture(autouse=True)
def pico(monkeypatch): monkeypatch.setitem(SIZES, "pico", Size(16, 2, 2, 8))


def shaken(seed=1, scale=0.3, **kwargs):
    """A small model with random parameters everywhere, in float64:
    fresh gates are zero and would let most checks pass trivially."""
    torch.manual_seed(0)
    model, g = (
        Autoregressive(VOCABULARY, AutoregressiveConfig(**dict(size="pico", max_length=12) | kwargs)).double().eval(),
        seeded(seed),
    )
    with torch.no_grad():
        for p in model.parameters(): p.add_(scale * torch.randn(p.shape, generator=g, dtype=p.dtype))
    return model


def read(prompts): return collate([parse_prompt(p, VOCABULARY) for p in prompts])
def plain(model): return lambda x, tau: model.intensities(x)
def text(ids): return "".join(VOCABULARY.decode(ids))


def examples(*pairs): return collate([prefix_example(prompt, s, VOCABULARY) for prompt, s in pairs])


@torch.no_grad()
def run(fn, sampler=LeftToRight(), prompts=PROMPTS, limits=Limits(99.0, 12), seed=0, **kwargs):  # noqa: B008
    return simulate(fn, read(prompts), sampler, range(seed, seed + len(prompts)), limits, **kwargs)


# likelihood

@pytest.mark.parametrize("prompt", ["", "a", "bbab"])
@pytest.mark.parametrize("seed", [1, 5])
def test_teacher_forcing_is_the_product_of_conditionals(prompt, seed):
    model = shaken(seed)
    for s in ("", "b", "abba"):
        slow = 0.0
        for k, what in enumerate(VOCABULARY.encode(s) + [END]):
            with torch.no_grad():
                slow += model.intensities(examples((prompt, s[:k]))).logits[0, -1].log_softmax(-1)[what].item()
        assert model.log_prob(examples((prompt, s))).item() == pytest.approx(slow, abs=1e-12)


@pytest.mark.parametrize("prompt", ["", "ab"])
def test_probabilities_sum_to_one(prompt):
    model, total = shaken(), 0.0
    for n in range(6):
        with torch.no_grad():
            log_p, _ = model.log_probs(examples(*((prompt, s) for s in itertools.product("ab", repeat=n))))
        total += log_p.sum(-1).exp().sum()
    total += (log_p[:, :-1].sum(-1).exp() * (1 - log_p[:, -1].exp())).sum()  # not ended after five
    torch.testing.assert_close(total, torch.ones((), dtype=torch.float64), rtol=0, atol=1e-13)


def test_padding_and_neighbours_change_nothing():
    model, pairs = shaken(), [("", "abba"), ("", ""), ("ab", "a"), ("bba", "babab"), ("a", "")]
    together = model.log_prob(examples(*pairs))
    alone = torch.cat([model.log_prob(examples(pair)) for pair in pairs])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize("field", ["tokens", "fixed", "closed"])
@pytest.mark.parametrize("after", [0, 2, 5])
def test_later_columns_change_nothing(field, after):
    model, x = shaken(), examples(("ab", "babba"))
    later = torch.arange(8) > after
    other = {
        "tokens": torch.where(later, 7 - x.tokens, x.tokens),
        "fixed": x.fixed ^ later,
        "closed": x.closed ^ later,
    }[field]
    with torch.no_grad(): a, b = (model.intensities(v).logits.softmax(-1) for v in (x, x._replace(**{field: other})))
    assert torch.equal(a[:, :after + 1], b[:, :after + 1])
    assert (a - b)[:, after + 1:].abs().max() > 1e-3


def test_a_fresh_model_is_uniform():
    torch.manual_seed(0)
    probs = (
        Autoregressive(VOCABULARY, AutoregressiveConfig(size="pico"))
        .intensities(examples(("a", "ba")))
        .logits.softmax(-1)
    )
    torch.testing.assert_close(probs[..., 3:], torch.full((1, 4, 3), 1 / 3))


def test_earlier_columns_matter():
    model = shaken()
    a, b = (model.intensities(examples(("", s))).logits[0, -1].softmax(-1) for s in ("abab", "bbab"))
    assert (a - b).abs().max() > 1e-3


def test_prompts_cost_nothing():
    model = shaken()
    log_p, counted = model.log_probs(examples(("abb", "ab"), ("", "abbab")))
    assert (log_p[~counted] == 0).all() and (log_p[counted] < 0).all() and counted.sum(-1).tolist() == [3, 6]
    assert counted[0].tolist() == [False, False, False, True, True, True]
    whole = read(["abb"])._replace(closed=torch.ones(1, 4, dtype=torch.bool))
    assert model.log_prob(whole).item() == 0 and model.loss(whole).loss.item() == 0


def test_the_gradient_of_the_loss():
    model, batch, g = shaken(), examples(("a", "bab"), ("", "b"), ("bb", "")), seeded(3)
    model.loss(batch).loss.backward()
    assert all(p.grad is not None for p in model.parameters())
    direction = [torch.randn(p.shape, generator=g, dtype=p.dtype) for p in model.parameters()]
    slope, values = sum((p.grad * v).sum() for p, v in zip(model.parameters(), direction, strict=True)).item(), []
    with torch.no_grad():
        for step in (1e-5, -2e-5):
            for p, v in zip(model.parameters(), direction, strict=True): p.add_(v, alpha=step)
            values.append(model.loss(batch).loss.item())
    assert slope == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-6)


def test_loss_and_bound():
    model, batch = shaken(), examples(("a", "bab"), ("", "b"), ("bb", ""))
    terms, (nll, se) = model.loss(batch), model.nll_bound(batch, 2)
    torch.testing.assert_close(terms.loss, nll.mean(), rtol=0, atol=1e-14)
    torch.testing.assert_close(nll, -model.log_prob(batch), rtol=0, atol=0)
    assert nll.dtype == torch.float64 and not nll.requires_grad and se.tolist() == [0, 0, 0]
    assert terms.metrics["per_token"] * 7 / 3 == pytest.approx(terms.loss.item())
    assert not any(v.requires_grad for v in terms.metrics.values())


def test_infilling_is_refused():
    model = shaken()
    assert not_a_prefix(read(INFILLING)).all() and not not_a_prefix(read(PROMPTS)).any()
    for prompt in INFILLING:
        with pytest.raises(ValueError, match=r"starting with \['.*prefix-only"): generate(model, [["a"], prompt])
        with pytest.raises(ValueError, match="prefix-only"): run(plain(model), prompts=[prompt])
    middle = examples(("", "aba"))._replace(fixed=torch.tensor([[True, False, True, False]]))
    for fn in (model.loss, model.log_prob, model.nll_bound):
        with pytest.raises(ValueError, match="prefix-only"): fn(middle)


# sampling

def follows(model, s, prompt, temperature, top_p, without_end):
    "What remains of the next token's law, by hand: {id: probability}."
    with torch.no_grad(): logits = model.intensities(examples((prompt, s))).logits[0, -1].tolist()
    weight = {i: math.exp(v / temperature) for i, v in enumerate(logits) if i >= 3 and not (without_end and i == END)}
    kept, mass = {}, 0.0
    for i in sorted(weight, key=weight.get, reverse=True):
        if mass >= top_p: break
        kept[i] = weight[i] / sum(weight.values())
        mass += kept[i]
    return {i: p / mass for i, p in kept.items()}


def exact_law(model, most, least=0, prompt="", temperature=1.0, top_p=1.0):
    "Probability of every sampled string, by recursion over prefixes."
    out = {}
    def grow(s, p):
        columns = 1 + len(prompt) + len(s)
        law = follows(model, s, prompt, temperature, top_p, columns < least)
        out[s] = p if columns == most else p * law.pop(END, 0.0)
        if columns < most:
            for i, q in law.items(): grow(s + VOCABULARY.tokens[i], p * q) if i != END else None
    grow("", 1.0)
    return out


@pytest.mark.parametrize(
    "case",
    [
        dict(most=6), dict(most=6, temperature=0.5), dict(most=6, top_p=0.7), dict(most=3),
        dict(most=6, least=4), dict(most=7, prompt="ab", least=5, top_p=0.9, temperature=1.5),
    ],
    ids=str,
)
def test_the_law_of_samples(case):
    model, n = shaken(), 1500
    exact = exact_law(model, **case)
    assert sum(exact.values()) == pytest.approx(1)
    limits = Limits(99.0, case.pop("most"), case.pop("least", 0))
    samples = run(
        model, prompts=[list(case.pop("prompt", ""))] * n, sampler=LeftToRight(**case), limits=limits
    )
    found = Counter(map(text, samples.completions()))
    assert set(found) <= {s for s, p in exact.items() if p > 0}
    z = [(found[s] - n * p) / (n * p * (1 - p))**0.5 for s, p in exact.items() if n * p > 10]
    assert len(z) > 2 and max(map(abs, z)) < 4.5


def test_a_narrow_nucleus_takes_the_likeliest():
    model = shaken()
    samples = run(model, LeftToRight(top_p=1e-9), prompts=PROMPTS * 3)
    assert samples.sequences[:5] == samples.sequences[5:10] == samples.sequences[10:]
    s = text(samples.completions()[0])
    for k, c in enumerate(s):
        assert VOCABULARY.tokens[max(law := follows(model, s[:k], "", 1.0, 1.0, False), key=law.get)] == c


def test_lengths_are_kept_and_counted():
    model = shaken()
    for least, most in ((0, 12), (8, 12), (8, 8), (12, 12), (0, 3), (2, 6)):
        prompts = [p for p in PROMPTS if len(p) < most] * 8
        samples = run(model, prompts=prompts, limits=Limits(99.0, most, least))
        lengths = [len(s) + 1 for s in samples.sequences]
        assert min(lengths) >= least and max(lengths) <= most
        assert samples.overflow == samples.overflowing <= lengths.count(most) and (samples.forced > 0) == (least > 1)


def push(end):
    "Ends at once, or never."
    return lambda x, tau: Intensities(logits=torch.zeros(*x.tokens.shape, 6).index_fill(-1, torch.tensor([5]), end))


def test_overflow_and_forced_tokens_are_counted():
    never, at_once = run(push(-torch.inf)), run(push(50.0))
    assert [len(s) + 1 for s in never.sequences] == [12] * 5
    assert never.overflow == never.overflowing == 5
    assert never.forced == 0
    assert [text(s) for s in at_once.sequences] == ["".join(p) for p in PROMPTS]
    assert at_once.overflow == 0
    assert at_once.network_calls == 1
    at_limit = lambda x, tau: Intensities(
        logits=F.one_hot(torch.tensor(5))
        * torch.where(x.lengths == 12, 50.0, -50.0)[:, None, None].expand(*x.tokens.shape, 1)
    )
    in_time = run(at_limit)
    # they end at the limit by themselves
    assert [len(s) + 1 for s in in_time.sequences] == [12] * 5 and in_time.overflow == in_time.overflowing == 0
    forced = run(push(50.0), limits=Limits(99.0, 12, 5))
    assert [len(s) + 1 for s in forced.sequences] == [5, 5, 5, 5, 6] and forced.forced == 4 + 3 + 2 + 1


def test_complete_prompts_cost_nothing():
    whole = read(["ab", "b"])
    samples = simulate(
        push(0.0), whole._replace(closed=torch.ones_like(whole.closed)), LeftToRight(), [0, 1], Limits(9.0, 9)
    )
    assert [text(s) for s in samples.sequences] == ["ab", "b"] and samples.network_calls == 0


def test_prompts_survive_in_front():
    samples = run(shaken(), prompts=PROMPTS * 5)
    for prompt, tokens, free in zip(PROMPTS * 5, samples.sequences, samples.free, strict=True):
        assert text(tokens).startswith("".join(prompt))
        assert free == [False] * len(prompt) + [True] * (len(tokens) - len(prompt))
    assert any(any(f) for f in samples.free)


def test_hooks_reach_tokens_and_the_end():
    without = lambda i: LeftToRight(
        logits_hook=lambda logits, x, tau: logits.index_fill(-1, torch.tensor([i]), -torch.inf)
    )
    for fn in (shaken(), plain(shaken())):
        assert {t for s in run(fn, without(4)).completions() for t in s} == {3}
        assert run(fn, without(END)).overflow == 5


@pytest.mark.parametrize("broken", [math.nan, -math.inf])
def test_no_token_left_is_refused(broken):
    with pytest.raises(ValueError, match="logits"):
        run(lambda x, tau: Intensities(logits=torch.full((*x.tokens.shape, 6), broken)))
    only_end = lambda x, tau: Intensities(
        logits=torch.full((*x.tokens.shape, 6), -torch.inf).index_fill(-1, torch.tensor([5]), 0.0)
    )
    assert run(only_end).network_calls == 1
    with pytest.raises(ValueError, match="logits"): run(only_end, limits=Limits(99.0, 12, 4))


# keys and values

class Beside:
    "Asks the cache and the plain network."
    def __init__(self, model): self.model, self.plain, self.worst, self.rows = model, plain(model), 0.0, []
    def read(self, x, tau, kept):
        (out, kept), b = self.model.read(x, tau, kept), self.plain(x, tau).logits
        a = out.logits
        self.worst = max(
            self.worst, (a - b.gather(1, (x.lengths - 1)[:, None, None].expand_as(a)))[..., 3:].abs().max().item()
        )
        self.rows.append(len(x.tokens))
        return out, kept


@pytest.mark.parametrize("seed", [1, 6])
def test_the_cache_survives_rows_that_end(seed):
    beside = Beside(shaken(seed, max_length=40))
    run(beside, prompts=PROMPTS * 8, limits=Limits(99.0, 40))
    assert beside.worst < 1e-12 and len(set(beside.rows)) > 4


def test_the_cache_reads_one_column_a_call(monkeypatch):
    model, read_columns = shaken(), []
    embed = type(model.backbone).embed
    monkeypatch.setattr(
        type(model.backbone), "embed", lambda self, x: (read_columns.append(tuple(x.tokens.shape)), embed(self, x))[1]
    )
    run(
        model,
        LeftToRight(logits_hook=lambda logits, x, tau: logits.index_fill(-1, torch.tensor([END]), -torch.inf)),
        prompts=[["a"], ["b", "b"]],
    )
    assert read_columns == [(2, 3)] + [(2, 1)] * 9 + [(1, 1)]


def test_the_cache_answers_anything():
    "Repeated, new and shrinking rows, and other numbers of them, in any order."
    model, kept = shaken(), None
    for strings in (
        ("a", "b"), ("ab", "bb"), ("ab", "bb"), ("abb", "bba"),
        ("abba", "bbab", "abaa"), ("a",), ("", ""), ("b", "a"), ("ba", "ab", "ba"),
    ):
        x = as_batch([VOCABULARY.encode(s) for s in strings])
        out, kept = asked(model, x, kept)
        torch.testing.assert_close(out, anew(model, x), rtol=0, atol=1e-12)


def asked(model, x, kept=None):
    with torch.no_grad(): out, kept = model.read(x, None, kept)
    return out.logits[:, 0], kept


def anew(model, x):
    with torch.no_grad(): return model.intensities(x).logits[torch.arange(len(x.tokens)), x.lengths - 1]


def test_what_is_kept_moves_with_its_rows():
    "Rows that are swapped, repeated and left out, and two states that continue from the same one."
    model = shaken()
    strings = ["a", "bb", "aba"]
    _, kept = asked(model, as_batch([VOCABULARY.encode(s) for s in strings]))
    for index in ([2, 0, 1], [1, 1, 2, 0], [0]):
        x = as_batch([VOCABULARY.encode(strings[i] + "b") for i in index])
        out, _ = asked(model, x, kept.rows(torch.tensor(index)))
        torch.testing.assert_close(out, anew(model, x), rtol=0, atol=1e-12)

    # the second one finds nothing, because the first has taken the memory over
    nexts = [as_batch([VOCABULARY.encode(s + end) for s in strings]) for end in "ab"]
    memories = [asked(model, x, kept)[1] for x in nexts]
    for memory, end in zip(memories, "ab"):
        longer = as_batch([VOCABULARY.encode(s + end + "b") for s in strings])
        torch.testing.assert_close(asked(model, longer, memory)[0], anew(model, longer), rtol=0, atol=1e-12)


def test_prompts_and_free_tokens_are_told_apart_in_what_is_kept():
    model, rows = shaken(), collate([prefix_example("a", "b", VOCABULARY), prefix_example("", "ab", VOCABULARY)])
    before = rows.map(lambda v: v[:, :-1])
    out, _ = asked(model, rows, asked(model, before)[1])
    expected = anew(model, rows)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    assert (expected[0] - expected[1])[3:].abs().max() > 1e-3


# the common interface

def test_sample():
    model = shaken()
    a, b = (generate(model, PROMPTS, 3, generator=seeded(0), batch_size=k, record=True) for k in (512, 2))
    assert a.sequences == b.sequences and a.trajectories == b.trajectories
    assert (
        a.network_calls == max(len(c) + (len(s) < 11) for s, c in zip(a.sequences, a.completions(), strict=True))
        or a.overflow
    )
    for times, tokens in zip(generation_times(a), a.completions(), strict=True):
        assert times == list(range(1, len(tokens) + 1))
    assert all(t.frames[-1][1] == s for t, s in zip(a.trajectories, a.sequences, strict=True))
    assert max(len(s) for s in generate(model, n=40, max_length=4, generator=seeded(0)).sequences) == 3
    assert min(len(s) for s in generate(model, n=40, min_length=4, generator=seeded(0)).sequences) == 3


def test_samplers_and_methods_that_do_not_fit():
    model, other = shaken(), LoFlexMDM(VOCABULARY, LoFlexMDMConfig(order="fixed", states=1, size="pico", max_length=8))
    for sampler in (EventDriven(), TauLeaping()):
        with pytest.raises(ValueError, match="ar takes LeftToRight"): generate(model, n=1, sampler=sampler)
    with pytest.raises(ValueError, match="is for autoregressive methods; loflexmdm takes .*EventDriven"):
        generate(other, n=1, sampler=LeftToRight())


@pytest.mark.parametrize(
    "kwargs", [dict(confidence="entropy"), dict(window=2, confidence="leftmost"), dict(temperature=0), dict(top_p=0)]
)
def test_sampler_settings_are_checked(kwargs):
    with pytest.raises(ValueError, match="|".join(kwargs)): LeftToRight(**kwargs)


@pytest.mark.parametrize("bad", [dict(size="huge"), dict(max_length=1)])
def test_configs_that_make_no_sense(bad):
    with pytest.raises(ValueError, match=next(iter(bad))): AutoregressiveConfig(**bad)


def test_the_cache_agrees_under_autocast_and_in_float32():
    model = shaken().float()
    x = as_batch([VOCABULARY.encode(s) for s in ("abab", "bb")])
    before = as_batch([VOCABULARY.encode(s) for s in ("aba", "b")])
    for precision, tolerance in ((False, 1e-5), (True, 0.1)):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=precision):
            _, kept = model.read(before, None)
            a = model.read(x, None, kept)[0].logits[:, 0]
            b = model.intensities(x).logits[torch.arange(2), x.lengths - 1]
        assert a.dtype == b.dtype == torch.float32
        torch.testing.assert_close(a[:, 3:], b[:, 3:], rtol=0, atol=tolerance)


DATA = [prefix_example("", s, VOCABULARY) for s in ["aab"] * 7 + ["ab"] * 5 + ["bb"] * 5 + ["a"] * 3]


def trainer(directory, **kwargs):
    torch.manual_seed(0)
    config = TrainConfig(
        **dict(steps=30, batch_size=20, lr=0.02, warmup=5, ema=0.9, valid_every=15, save_every=15) | kwargs
    )
    return Trainer(
        Autoregressive(VOCABULARY, AutoregressiveConfig(size="pico", max_length=8)),
        DATA,
        config,
        directory,
        valid=DATA,
        progress=False,
    )


def test_training_learns_and_resumes_exactly(tmp_path):
    whole = trainer(tmp_path / "whole")
    whole.fit()
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    shutil.rmtree(checkpoints(tmp_path / "cut")[-1])
    resumed = trainer(tmp_path / "cut")
    resumed.fit(resume=True)
    assert difference(tmp_path / "whole", tmp_path / "cut") == 0
    losses = [r["valid_nll"] for r in whole.log.rows() if "valid_nll" in r]
    entropy = -sum(p * math.log(p) for p in (0.35, 0.25, 0.25, 0.15))
    assert entropy < losses[-1] < losses[0] < math.log(3) * 4
    assert all(r["order_grad_norm"] is None for r in whole.log.rows() if "order_grad_norm" in r)


@pytest.mark.parametrize("kwargs", [dict(precision="bfloat16"), dict(optimiser="muon"), dict(accumulate=2)])
def test_training_options(kwargs, tmp_path):
    run = trainer(tmp_path, steps=3, valid_every=3, save_every=3, **kwargs)
    run.fit()
    assert math.isfinite(run.best)


def call(line, *more):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err): code = main([*line.split(), *map(str, more)])
    return code, out.getvalue(), err.getvalue()


@pytest.mark.slow
def test_the_command_line(tmp_path):
    small = "--size nano --batch-size 4 --warmup 2 --valid-every 2 --valid-size 4 --save-every 2 --device cpu".split()
    code, _, err = call("train star-tiny --method ar --steps 2 --out", tmp_path / "run", *small)
    assert code == 0, err
    assert json.loads((tmp_path / "run/best/config.json").read_text())["method"] == "ar"
    code, out, err = call("sample", tmp_path / "run", "-n", 3, "--device", "cpu", "--out", tmp_path / "samples.jsonl")
    assert code == 0 and len((tmp_path / "samples.jsonl").read_text().splitlines()) == 3, err
    code, out, err = call("evaluate", tmp_path / "run", "-n", 4, "--nll", 2, "--device", "cpu")
    assert code == 0 and "exact_match" in out + err, err
    again = call(
        "sample", tmp_path / "run", "-n", 3, "--device", "cpu",
        "--sampler", "left-to-right", "--out", tmp_path / "again.jsonl",
    )
    assert again[0] == 0 and (tmp_path / "again.jsonl").read_text() == (tmp_path / "samples.jsonl").read_text()
    for sampler in ("event", "tau"):
        code, out, err = call("sample", tmp_path / "run", "-n", 1, "--device", "cpu", "--sampler", sampler)
        assert code == 2 and "choose left-to-right" in err and "Traceback" not in err
    (tmp_path / "prompts.jsonl").write_text('["1", "...", "2"]\n')
    code, out, err = call(
        "sample", tmp_path / "run", "-n", 1, "--device", "cpu", "--prompts", tmp_path / "prompts.jsonl"
    )
    assert code == 2 and "prefix-only" in err and "Traceback" not in err


@pytest.mark.parametrize("index, copied", [([1, 3, 4], False), ([0, 1], False), ([4], False), ([2, 2, 0], True)])
def test_kept_rows_move_into_the_places_of_those_that_leave(index, copied):
    pairs, lengths = torch.randn(2, 2, 5, 1, 3, 2), torch.arange(5) + 1
    before, kept = pairs.clone(), KeysAndValues(pairs, lengths)
    some = kept.rows(torch.tensor(index))
    torch.testing.assert_close(some.pairs[:, :, some.place], before[:, :, index], atol=0, rtol=0)
    assert some.lengths.tolist() == lengths[index].tolist() and kept.pairs is None
    assert (some.pairs.untyped_storage().data_ptr() != pairs.untyped_storage().data_ptr()) == copied

    # of what is left some rows leave again
    last = some.rows(torch.tensor([len(index) - 1]))
    torch.testing.assert_close(last.pairs[:, :, last.place], before[:, :, index[-1:]], atol=0, rtol=0)


def test_a_hook_may_take_gradients_of_clones():
    "Sampling is in inference mode, whose tensors have no gradients; what a hook clones outside of it has."
    model = Autoregressive(Vocabulary("ab"), AutoregressiveConfig(size="nano", max_length=6))
    modes, gradients = [], []

    def hook(logits, x, tau):
        modes.append(torch.is_inference_mode_enabled())
        with torch.inference_mode(False), torch.enable_grad():
            own = logits.clone().requires_grad_()
            own.softmax(-1)[..., -1].sum().backward()
        gradients.append(own.grad.abs().sum().item())
        return logits
    generate(model, n=2, seed=0, sampler=LeftToRight(logits_hook=hook))
    assert modes and all(modes) and min(gradients) > 0
