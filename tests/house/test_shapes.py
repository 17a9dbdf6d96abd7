"""The shapes and dtypes in the package's types hold: with every annotated call checked, training, bounds, samplers
and the exact laws run through.

The checks are in an import hook, so they run in a process of their own, `python tests/house/test_shapes.py`."""
import subprocess
import sys
from pathlib import Path

import beartype
import jaxtyping
import pytest
import torch

ROOMS = "process", "exact", "networks", "samplers", "methods"
check = beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))  # an int is welcome where a float is


def install():
    "Check every call of the modules, and the fields of their named tuples, from here on."
    jaxtyping.install_import_hook([f"loflexmdm.{room}" for room in ROOMS], "__main__.check")
    from loflexmdm.exact import ctmc
    from loflexmdm.methods import lo_flexmdm, planner_bounds
    from loflexmdm.process import intensities, matching, states
    from loflexmdm.samplers import simulate, state
    for module in (states, intensities, matching, ctmc, simulate, state, lo_flexmdm, planner_bounds):
        for cls in vars(module).values():
            if isinstance(cls, type) and hasattr(cls, "_fields") and cls.__module__ == module.__name__:
                cls.__new__ = jaxtyping.jaxtyped(cls.__new__, typechecker=check)


def batch():
    "Two sequences of different lengths over three tokens, and their vocabulary."
    from loflexmdm.process.states import Vocabulary, collate, prefix_example
    vocabulary = Vocabulary("abc")
    return vocabulary, collate([prefix_example("a", "bcb", vocabulary), prefix_example("", "ca", vocabulary)])


def each_method():
    "A tiny model of every method."
    from loflexmdm.methods.autoregressive import Autoregressive, AutoregressiveConfig
    from loflexmdm.methods.flexmdm import FlexMDM, FlexMDMConfig
    from loflexmdm.methods.gen_md4 import GenMD4, GenMD4Config
    from loflexmdm.methods.lo_flexmdm import LoFlexMDM, LoFlexMDMConfig
    from loflexmdm.methods.masked import MaskedConfig, MaskedDiffusion
    from loflexmdm.methods.papl import PAPL, PAPLConfig
    small = dict(size="nano", max_length=6)
    yield Autoregressive, AutoregressiveConfig(**small)
    yield FlexMDM, FlexMDMConfig(**small)
    yield FlexMDM, FlexMDMConfig(unmasking="cosine", times="uniform", **small)
    yield LoFlexMDM, LoFlexMDMConfig(order_size="nano", unmask="trainable", **small)
    yield LoFlexMDM, LoFlexMDMConfig(order="fixed", **small)
    yield MaskedDiffusion, MaskedConfig(time=True, **small)
    yield GenMD4, GenMD4Config(**small)
    yield PAPL, PAPLConfig(**small)
    yield PAPL, PAPLConfig(form="time", mixture="interpolate", **small)


def some_samplers(channels):
    "The samplers for methods of these channels, with the options that take other paths."
    from loflexmdm.samplers import Ancestral, EventDriven, Planner, TauLeaping, fitting_samplers
    for cls in fitting_samplers(channels).values(): yield cls(steps=4) if issubclass(cls, TauLeaping) else cls()
    if "append" in channels: return
    yield TauLeaping(steps=4, grid="clock", hold="count", confidence="top_prob", softness=1.0)
    yield EventDriven(exact=False, events_per_call=2, confidence="sampled")
    if channels == ("unmask",):
        yield Ancestral(steps=3, confidence="entropy", window=2)
        yield Planner(remask=1.0, softness=1.0)


def check_refusals():
    "The hook is at work: a dtype, a dimension and a field of a named tuple that are wrong."
    from loflexmdm.process import matching, paths, states
    vocabulary, x1 = batch()
    for wrong in (
        lambda: states.gap_of(x1, x1.tokens.double()),
        lambda: matching.MatchTerms(*map(torch.rand, (2, 2, 2, 3))),
        lambda: paths.InsertUnmask().log_prob(x1, x1.tokens, torch.rand(3)),
        lambda: x1._replace(fixed=x1.tokens).free,
    ):
        with pytest.raises(jaxtyping.TypeCheckError): wrong()


def check_methods():
    "A step of training, a bound and samples of every method."
    from loflexmdm.methods.sampling import generate
    vocabulary, x1 = batch()
    for cls, config in each_method():
        model = cls(vocabulary, config)
        model.loss(x1, torch.Generator().manual_seed(0)).loss.backward()
        model.nll_bound(x1, samples=2)
        for sampler in some_samplers(tuple(cls.channels)):
            prompts = [["a"]] if "append" in cls.channels else [["a", ..., "b"]]
            generate(model, prompts, n=2, sampler=sampler, record=True)
    from loflexmdm.methods.masked import MaskedConfig, MaskedDiffusion
    from loflexmdm.methods.planner_bounds import greedy_bound, planner_bound
    model = MaskedDiffusion(vocabulary, MaskedConfig(size="nano", max_length=6))
    model.discrete_bound(x1, steps=3, samples=2)
    greedy_bound(model, x1), planner_bound(model, x1, samples=2)


def check_laws():
    "The exact generator of a small law, its forward equation and bounds, and samples from it."
    from loflexmdm.exact import ctmc
    from loflexmdm.samplers import EventDriven, Limits, simulate
    law = ctmc.ToyLaw.of({"ab": 0.7, "b": 0.3}, b_in=2.0)
    model = law.oracle()
    ctmc.kfe_residual(law, model, 0.5)
    final = ctmc.final_law(law.space, model, steps=16, tol=1e-2)
    ctmc.total_variation(ctmc.resolve_masks(law.space, model, final.probs, 60.0), final.probs)
    ctmc.path_bounds(law, model)
    prompts = ctmc.as_batch([[]] * 4)
    samples = simulate(model, prompts, EventDriven(slack=4.0), range(4), Limits(60.0, 8, min_length=3))
    ctmc.compare(law, samples.sequences)
    ctmc.aligned_rates(law), law.clean
    x1, state, b_in, b_um = ctmc.aligned_batch(law)


def check_alignments():
    "Alignments of every kind, from every source."
    from loflexmdm.process import alignments
    vocabulary, x1 = batch()
    g = torch.Generator().manual_seed(0)
    size = len(vocabulary)
    sources = (alignments.Empty(), alignments.Masks(), alignments.UniformTokens(size, 3), alignments.Corrupted(size))
    for source in sources:
        for how in (*alignments.ALIGNMENTS, "shuffled:0.5"):
            z = alignments.align(*source.pairs(x1, g), how, g)
            shown = torch.rand(z.z0.shape, generator=g) < 0.5
            alignments.at(z, shown), alignments.slot_column(z, shown)
            assert z.edits.sum() == z.inserts.sum() + z.deletes.sum() + z.substitutes.sum()
        alignments.edit_distance(*source.pairs(x1, g))


def check_schedules():
    "Clocks, log-probabilities, penalties, processes and matching."
    from loflexmdm.process import channels, clocks, matching, paths, schedules
    vocabulary, x1 = batch()
    t = torch.rand(2, 3, dtype=torch.float64)
    for name in ("linear", "cosine", "geometric", "power:2", "shifted:0.001"):
        clock = clocks.clock_named(name)
        clock.time(clock.tau(t)), clock.shape(t), clock.kappa(t)
    clocks.Kumaraswamy(2.0).quantile(t, t + 1), clocks.Kumaraswamy(2.0).cdf(t, t + 1)
    schedules.state_log_probs(t, 1.0, t + 0.5)
    schedules.order_log_prob(t + 1, torch.argsort(t))
    tau, b = torch.rand(2), torch.rand(x1.tokens.shape) + 0.5
    for path, rates in ((paths.InsertUnmask(), (b, b)), (paths.Unmasking(), ()), (paths.Unmasking(), (b,)),
                        (paths.Inserting(), (b,))):
        path.log_prob(x1, path.sample(x1, tau, *rates), tau, *rates)
    for channel in channels.CHANNELS.values(): channel.legal(x1)
    channels.apply_events(x1, dict(delete=x1.free.long()), {})
    matching.reinforce(torch.rand(3, 2), torch.rand(3, 2), baseline=torch.rand(2))


@pytest.mark.slow
def test_every_checked_call_has_the_shapes_that_it_says():
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, cwd=Path(__file__).parent)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == [
        "check_refusals", "check_alignments", "check_schedules", "check_laws", "check_methods"
    ]


if __name__ == "__main__":
    install()
    for run in (check_refusals, check_alignments, check_schedules, check_laws, check_methods):
        run()
        print(run.__name__, flush=True)
