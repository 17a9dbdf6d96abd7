"The demo without its training runs: what its seed sets, and a legend that no curve crosses."
import matplotlib.pyplot as plt
import pytest

from loflexmdm.reports import demo


class Asked(Exception):
    "Raised where training would begin."


def test_the_seed_is_that_of_the_training_runs_too(tmp_path, monkeypatch):
    def train(recipe, directory, progress): raise Asked(recipe.train.seed)
    monkeypatch.setattr(demo.Recipe, "trainer", train)
    with pytest.raises(Asked, match="^7$"): demo.demo(tmp_path, n=2, seed=7, progress=False)


def test_the_legend_lies_outside_the_panels():
    falling = [dict(step=step, loss=1.0, bound=20.0 / step, valid_nll=10.0 / step) for step in range(1, 50)]
    axes = demo.plot_curves(dict(learned=falling, uniform=falling))
    figure = axes[0].figure
    figure.canvas.draw()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["training batch", "validation, averaged model"]
    box = legend.get_window_extent()
    assert all(ax.get_legend() is None and not box.overlaps(ax.get_tightbbox()) for ax in axes)
    plt.close(figure)
