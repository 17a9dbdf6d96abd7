"How many functions lie between a call and its arithmetic, by `experiments/call_paths.py`."
import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "experiments" / "call_paths.py"


def test_few_functions_lie_between_a_call_and_its_arithmetic():
    spec = importlib.util.spec_from_file_location("call_paths", SCRIPT)
    spec.loader.exec_module(call_paths := importlib.util.module_from_spec(spec))
    found = call_paths.measured()
    names = [function.name for function in found.train_step]
    assert len(names) <= 6 and names[:3] == ["Trainer.train_step", "Trainer.gradients", "LoFlexMDM.loss"], names
    assert len(found.sample) <= 7, found.sample

    # Eq 5 at given states, which is what the loss of flow_matching computes
    match = call_paths.without_networks(found.match)
    assert len(match) <= 25 and len(call_paths.files_of(match)) <= 5, match
    assert {"match_terms", "bregman", "target_rates"} <= {function.name for function in match}
    loss = call_paths.without_networks(found.loss)
    assert len(match) < len(loss) <= 56, loss
