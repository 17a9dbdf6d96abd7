"Correctors of Edit Flows from nothing, which insert more than is needed and delete some of it again."
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from loflexmdm.methods.edit_flows import EditFlow
from loflexmdm.methods.sampling import encode_prompts
from loflexmdm.process.clocks import Clock, Power
from loflexmdm.process.intensities import Intensities, IntensityFn
from loflexmdm.process.states import PartialSequences
from loflexmdm.samplers import EventDriven, Limits, Samples, TauLeaping, simulate
from loflexmdm.samplers.base import reader
from loflexmdm.samplers.draws import draws
from loflexmdm.samplers.state import Info, RowFloat, State, advance, is_finished
from loflexmdm.samplers.tau_leaping import next_reading, poisson_quantile


def corrector_strength(scale: float, rise: float = 1.5, fall: float = 0.5) -> Callable[[RowFloat], RowFloat]:
    """Return a corrector's strength alpha over time. It is the paper's scale t^rise (1 - t)^fall in [0, 1].

    ValueError for a scale below 0, or a `rise` or `fall` that is not positive."""
    if not 0 <= scale < math.inf: raise ValueError(f"scale={scale}: must not be negative, and finite")
    for name, power in (("rise", rise), ("fall", fall)):
        if not 0 < power < math.inf: raise ValueError(f"{name}={power}: must be positive, and finite")
    return lambda t: scale * t**rise * (1 - t) ** fall


class Corrected:
    """Rates of a flow from nothing with a corrector. They are (1 + alpha) u + alpha r; the marginals are those of u.

    `alpha` is a function of times of `clock`, (batch,) to (batch,). A sampler calls this in place of the network, with
    the channels `insert` and `delete`."""
    def __init__(self, intensity_fn: IntensityFn, alpha: Callable[[RowFloat], RowFloat], clock: Clock):
        self.evaluate = reader(intensity_fn)
        self.alpha = alpha
        self.clock = clock

    def read(self, x: PartialSequences, tau: RowFloat, kept: object | None = None) -> tuple[Intensities, object | None]:
        "Return corrected intensities, and the network's cache of the rows (`reader`)."
        out, kept = self.evaluate(x, tau, kept)
        alpha = self.alpha(self.clock.time(tau))[:, None]

        # every token was inserted, at a time whose law depends only on the clock
        back = (alpha / torch.expm1(tau)[:, None]).to(out.insert.dtype)
        delete = torch.where(x.free, back, 0.0)
        return out._replace(insert=(1 + alpha).to(out.insert.dtype) * out.insert, delete=delete), kept

    def __call__(self, x: PartialSequences, tau: RowFloat) -> Intensities:
        "Compute the corrected intensities."
        return self.read(x, tau)[0]


@dataclass(frozen=True)
class ThereAndBack(TauLeaping):
    """Leaps of a flow from nothing with a corrector as published: from t to t + h (1 + alpha), then back to t + h.

    The way back takes no network call. Forward the number of missing tokens is held, and none leaps beyond the end.
    ValueError as `TauLeaping`."""
    alpha: Callable[[RowFloat], RowFloat] = field(default=corrector_strength(0.0), repr=False)  # of clock times
    clock: Clock = Power(3.0)  # clock on which leaps are extended

    def __post_init__(self):
        super().__post_init__()
        if not callable(self.alpha): raise ValueError(f"alpha={self.alpha!r}: must be a function of times")
        if not isinstance(self.clock, Clock): raise ValueError(f"clock={self.clock!r}: must be a Clock")

    def beyond(self, now: RowFloat, tau: RowFloat, end: float) -> RowFloat:
        "Return the turning point of a leap from `now` to `tau`. (batch,) readings, `end` at most."
        before, after = self.clock.time(now), self.clock.time(tau)
        far = self.clock.tau((after + self.alpha(before) * (after - before)).clamp_max(1.0))
        return torch.maximum(far.clamp_max(end), tau)

    def step(self, intensity_fn: IntensityFn, state: State) -> tuple[State, Info]:
        "Take one step: network call, forward leap, and way back."
        out, state = self.call_network(intensity_fn, state)
        end = state.limits.tau_max
        tau = next_reading(self.taus(end), state.tau)
        far = self.beyond(state.tau, tau, end)

        # each missing token is inserted by then with the same probability
        count, token = draws(state, 2)
        arrived = -torch.expm1(state.tau - far)[:, None]
        inserted = dict(insert=poisson_quantile(count, out.rate("insert") * arrived))
        ahead, overflow, forced = self.apply_events(out, state, inserted, tau, token)

        # each present token was inserted after `tau`, where the leap returns, with the same probability
        late = 1 - torch.expm1(-tau) / torch.expm1(-far)
        deleted = (draws(ahead, 1)[0] < late[:, None]) & ahead.x.free
        back, _ = advance(ahead, tau, dict(delete=deleted.long()), dict(delete=None))
        done = is_finished(back.x, tau, back.full, back.limits)
        return back._replace(done=done), Info(overflow, torch.zeros_like(overflow), forced)


def sample_corrected(
    model: EditFlow,
    n: int,
    alpha: Callable[[RowFloat], RowFloat],
    steps: int | None = None,
    generator: torch.Generator | None = None,
) -> Samples:
    """Draw `n` sequences of a flow with a corrector. From the empty sequence, by thinning or in leaps of `steps`
    network calls, with seeds from `generator`.

    ValueError for flows from another source or on localized paths: their reverse rates depend on more than a clock."""
    config = model.config
    if config.coupling != "empty": raise ValueError(f"coupling={config.coupling!r}: a corrector needs coupling=empty")
    if config.spread: raise ValueError(f"spread={config.spread}: a corrector needs independent edits, spread=0")
    if steps is None: rates, sampler = Corrected(model, alpha, model.clock), EventDriven()
    else: rates, sampler = model, ThereAndBack(steps=steps + 1, alpha=alpha, clock=model.clock)

    # the model has only the insertion channel
    prompts = encode_prompts(None, n, model.vocabulary, config.max_length)
    seeds = torch.randint(2**62, (n,), generator=generator).tolist()
    start = model.begin(prompts, config.max_length, seeds)
    limits = Limits(model.tau_max, model.most_columns(config.max_length), channels=("insert", "delete"))
    with torch.inference_mode(): samples = simulate(rates, start, sampler, seeds, limits)
    return model.finish(samples)
