"A run that is finished, for tests that read it."
import pytest
from small_runs import trainer


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "run"
    trainer(path, steps=4).fit()
    return path
