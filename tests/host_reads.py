"Counts what makes the processor wait for a GPU, in a dry run without one."
from collections import Counter

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

CONVERSIONS = {
    getattr(torch.Tensor, name)
    for name in ("item", "tolist", "cpu", "numpy", "__bool__", "__int__", "__float__", "__index__")
}
# the shape of what they return depends on values
SIZED_BY_VALUES = {torch.ops.aten.nonzero.default, torch.ops.aten.masked_select.default}


class _Calls(TorchFunctionMode):
    "Counts Python's questions to tensors; one inside of another is the same."
    def __init__(self, counts: Counter): super().__init__(); self.counts = counts

    def __torch_function__(self, func, types, args=(), kwargs=None):
        # the state of a generator lies on the processor
        of_generator = getattr(args[0] if args else None, "dtype", None) == torch.uint8
        self.counts["reads"] += func in CONVERSIONS and not of_generator
        return func(*args, **(kwargs or {}))


class _Operations(TorchDispatchMode):
    "Counts operations whose result has a shape that only the device knows."
    def __init__(self, counts: Counter): super().__init__(); self.counts = counts

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        by_mask = func in (torch.ops.aten.index.Tensor, torch.ops.aten.index_put_.default) and any(
            i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1])
        self.counts["selections"] += by_mask or func in SIZED_BY_VALUES
        return func(*args, **(kwargs or {}))


class HostReads:
    """As a context: `counts["reads"]` of values (item, tolist, cpu, bool, int, float), and `counts["selections"]`, by a
    mask or of what is not 0, whose size is read."""
    def __init__(self): self.counts = Counter(reads=0, selections=0)

    def __enter__(self):
        self.modes = _Calls(self.counts), _Operations(self.counts)
        for mode in self.modes: mode.__enter__()
        return self

    def __exit__(self, *error):
        for mode in reversed(self.modes): mode.__exit__(*error)
