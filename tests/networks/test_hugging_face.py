"Encoders of transformers as networks: tiny, random, built from configurations, never downloaded."
import json
import logging
import resource
import shutil
import sys
import warnings

import pytest
import torch
from registered import of_package

import loflexmdm
from loflexmdm.methods.autoregressive import Autoregressive, AutoregressiveConfig
from loflexmdm.methods.flexmdm import FlexMDM, FlexMDMConfig
from loflexmdm.methods.gen_md4 import GenMD4
from loflexmdm.methods.lo_flexmdm import LoFlexMDM, LoFlexMDMConfig
from loflexmdm.methods.masked import MaskedConfig, MaskedDiffusion
from loflexmdm.methods.retrofit import retrofit
from loflexmdm.methods.sampling import generate
from loflexmdm.models.saved import save_method
from loflexmdm.networks.build import check_backbone
from loflexmdm.networks.hugging_face import HuggingFaceBackbone, hugging_face, read_encoder_config
from loflexmdm.networks.hugging_face import silence_transformers, sized_config
from loflexmdm.networks.transformer import SIZES, Size
from loflexmdm.process.states import Vocabulary, collate, prefix_example
from loflexmdm.support.limits import WEIGHTS
from loflexmdm.support.registries import METHODS
from loflexmdm.tasks.base import Examples
from loflexmdm.training.optimisers import TrainConfig
from loflexmdm.training.trainer import Trainer

STYLES = ("bert", "modernbert", "esm")
LETTERS = Vocabulary("abcd")


@pytest.fixture(autouse=True)
def pico(monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.setitem(SIZES, "pico", Size(16, 2, 2, 8))


def built(kind, seed=0, **options):
    torch.manual_seed(seed)
    return HuggingFaceBackbone.from_config(len(LETTERS), "pico", kind, **options)


def moved(backbone):
    "The projections of the conditioning start at 0, which would hide it."
    g = torch.Generator().manual_seed(0)
    for layer in (backbone.project, backbone.adapt): torch.nn.init.normal_(layer.weight, std=0.3, generator=g)
    return backbone.double().eval()


def rows(): return collate([prefix_example("a", "bc", LETTERS), prefix_example("d", "abcdab", LETTERS)])


def hidden(backbone, x, level=0.0):
    with torch.no_grad(): return backbone(x, torch.full((len(x.tokens), backbone.cond), level, dtype=torch.float64))


def flexmdm(kind, **options):
    torch.manual_seed(0)
    network = dict(network="hugging_face", network_config=kind)
    return FlexMDM(LETTERS, FlexMDMConfig(size="pico", max_length=12, **network, **options))


def draws(method, n=12): return generate(method, n=n, generator=torch.Generator().manual_seed(3)).sequences


@pytest.mark.slow
@pytest.mark.parametrize("kind", STYLES)
def test_an_encoder_is_a_backbone(kind):
    backbone = check_backbone(built(kind), kind)
    assert (backbone.width, backbone.cond, backbone.token.num_embeddings) == (16, 8, len(LETTERS))
    assert len(backbone.blocks) == 2 and not any("pooler" in name for name, _ in backbone.named_parameters())


@pytest.mark.slow
@pytest.mark.parametrize("kind", STYLES)
def test_padding_changes_nothing_and_clock_flags_and_order_do(kind):
    backbone, x = moved(built(kind)), rows()
    alone = x.rows([0]).trim()
    h, n = hidden(backbone, alone), alone.tokens.shape[1]
    torch.testing.assert_close(hidden(backbone, x)[:1, :n], h, rtol=0, atol=1e-12)
    swapped = alone._replace(tokens=alone.tokens[:, [0, 1, 3, 2]])
    for other in (alone._replace(fixed=~alone.fixed), alone._replace(closed=~alone.closed), swapped):
        assert (hidden(backbone, other) - h)[:, :2].abs().max() > 1e-3
    for layer in (backbone.project, backbone.adapt):  # each way of the clock by itself
        kept = layer.weight.clone()
        torch.nn.init.zeros_(layer.weight)
        assert (hidden(backbone, alone, 1.0) - hidden(backbone, alone)).abs().max() > 1e-3
        layer.weight.data.copy_(kept)


@pytest.mark.slow
@pytest.mark.parametrize("kind", STYLES)
def test_it_is_built_again_from_what_is_saved(kind, tmp_path):
    method = flexmdm(kind)
    save_method(method, tmp_path / "model")
    saved = json.loads((tmp_path / "model" / "config.json").read_text())["config"]
    assert saved["network"] == "hugging_face" and json.loads(saved["network_config"])["model_type"] == kind
    again = loflexmdm.load(tmp_path / "model")
    assert again.config == method.config and draws(again.method) == draws(method)
    assert all(torch.equal(v, method.state_dict()[k]) for k, v in again.method.state_dict().items())


@pytest.mark.parametrize("kind", STYLES)
@pytest.mark.parametrize(
    "cls, options",
    [
        (FlexMDM, {}), (MaskedDiffusion, {}), (GenMD4, {}),
        (LoFlexMDM, dict(order_size="pico")), (LoFlexMDM, dict(backbone="shared")),
    ],
)
def test_every_parameter_learns(kind, cls, options):
    torch.manual_seed(0)
    network = dict(network="hugging_face", network_config=kind)
    method = cls(LETTERS, cls.Config(size="pico", max_length=12, **network, **options))
    with torch.no_grad():
        for p in method.parameters(): p.add_(0.05 * torch.randn(p.shape))
    method.loss(rows(), torch.Generator().manual_seed(0)).loss.backward()
    still = {name for name, p in method.named_parameters() if p.grad is None or not p.grad.any()}
    assert not {name for name in still if not name.startswith("order.unmask")}  # not learned unless b_um is trainable


@pytest.mark.parametrize("kind", STYLES)
def test_as_order_model_it_sets_the_schedule(kind, tmp_path):
    torch.manual_seed(0)
    network = dict(order_network="hugging_face", order_network_config=kind, order_size="pico")
    method = LoFlexMDM(LETTERS, LoFlexMDMConfig(size="pico", max_length=12, **network))
    torch.nn.init.normal_(method.order.insert.out.weight, std=0.5, generator=torch.Generator().manual_seed(1))
    b_in, _ = method.eval().schedule(rows())
    assert b_in.std() > 0.01
    assert {id(p) for p in method.order_backbone.parameters()} <= {id(p) for p in method.order_parameters}
    again = loflexmdm.load(save_method(method, tmp_path / "model"))
    torch.testing.assert_close(again.method.schedule(rows())[0], b_in, rtol=0, atol=0)
    assert json.loads(again.config.order_network_config)["model_type"] == kind and again.config.network_config == ""


def test_a_run_with_muon_trains_and_resumes_exactly(tmp_path):
    data = Examples(32, lambda i: prefix_example("", "abcd"[i % 4] * (1 + i % 3), LETTERS))
    options = dict(steps=6, batch_size=4, warmup=1, optimiser="muon", log_every=6, valid_every=6)
    config = lambda every: TrainConfig(save_every=every, **options)
    through = Trainer(flexmdm("bert"), data, config(6), tmp_path / "a", progress=False).fit()
    trainer = Trainer(flexmdm("bert"), data, config(3), tmp_path / "b", progress=False)
    muon = {id(p) for g in trainer.optimisers[0].param_groups for p in g["params"]}
    assert muon == {id(p) for p in trainer.method.backbone.blocks.parameters() if p.ndim == 2}
    trainer.fit()
    shutil.rmtree(trainer.checkpoints[-1])
    resumed = Trainer(flexmdm("bert"), data, config(3), tmp_path / "b", progress=False).fit(resume=True)
    for a, b in zip(through.method.parameters(), resumed.method.parameters(), strict=True): assert torch.equal(a, b)


@pytest.fixture
def checkpoint(tmp_path):
    "A random BERT of 50 words, as a directory."
    from transformers import AutoModel, BertConfig
    torch.manual_seed(5)
    sizes = dict(hidden_size=24, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    bert = AutoModel.from_config(BertConfig(vocab_size=50, max_position_embeddings=20, **sizes))
    bert.save_pretrained(tmp_path / "bert")
    return tmp_path / "bert", bert.state_dict()


def test_a_checkpoint_gives_its_weights_and_is_not_needed_again(checkpoint, tmp_path, monkeypatch):
    path, weights = checkpoint
    reports = []
    monkeypatch.setattr(logging.StreamHandler, "emit", lambda self, record: reports.append(record.getMessage()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        method = flexmdm(str(path))
    mine = method.backbone.encoder.state_dict()
    assert {k for k, v in mine.items() if not torch.equal(v, weights[k])} == {"embeddings.word_embeddings.weight"}
    assert not reports
    saved = save_method(method, tmp_path / "model")
    path.rename(tmp_path / "gone")
    assert draws(loflexmdm.load(saved).method) == draws(method.eval())


def test_a_checkpoint_without_some_weights_is_told(checkpoint):
    from safetensors.torch import load_file, save_file
    path, _ = checkpoint
    weights = load_file(path / "model.safetensors")
    kept = {k: v for k, v in weights.items() if "attention" not in k}
    save_file(kept, path / "model.safetensors", metadata=dict(format="pt"))
    message = r"bert: 10 tensors of the encoder are missing and stay random: encoder\.layer\.0\.attention"
    with pytest.warns(UserWarning, match=message): flexmdm(str(path))


def test_a_configuration_file(checkpoint):
    path, weights = checkpoint
    method = flexmdm(str(path / "config.json"))
    assert method.backbone.width == 24 and method.backbone.longest == 20
    key = "encoder.layer.0.attention.self.query.weight"
    assert not torch.equal(method.backbone.encoder.state_dict()[key], weights[key])


def test_a_type_of_model_goes_before_a_directory_of_that_name(tmp_path, monkeypatch):
    (tmp_path / "bert").mkdir()
    monkeypatch.chdir(tmp_path)
    assert read_encoder_config("bert", "pico").hidden_size == 16
    with pytest.raises(ValueError, match="network_config='./bert'"): read_encoder_config("./bert", "pico")


def test_first_weights_are_scaled_to_the_width_and_nothing_drops_out():
    config = sized_config("bert", "pico")
    assert config.initializer_range == pytest.approx(0.02 * (768 / 16) ** 0.5)
    assert config.attention_probs_dropout_prob == 0
    backbone = built("bert").train()
    h = [backbone(rows(), torch.zeros(2, 8)) for _ in range(2)]
    assert torch.equal(*h)


REFUSED = {
    "": "name a type of model",
    "brt": "no file, and no type of model",
    "{": "not valid JSON",
    "[1]": "no file",
    '{"hidden_size": 8}': "'model_type' is missing",
    '{"model_type": "huge"}': "'huge' is unknown to transformers",
    '{"model_type": "bert", "hidden_size": "big"}': "hidden_size",
    "gpt2": "'gpt2': reads from left to right only",
    "t5": "encoder with a decoder",
    "vit": "'vit': reads no tokens",
    "xlnet": "has no sizes of this kind",
}


@pytest.mark.parametrize("options, message", REFUSED.items())
def test_what_cannot_serve_is_refused_in_one_line(options, message):
    with pytest.raises(ValueError, match=message) as e: flexmdm(options)
    assert "network_config" in str(e.value) and "\n" not in str(e.value)


def test_longer_sequences_than_there_are_positions():
    backbone = built("bert")
    with pytest.raises(ValueError, match="sequence of 601 columns: the encoder has 512 positions"):
        backbone(collate([prefix_example("", "ab" * 300, LETTERS)]), torch.zeros(1, 8))
    assert built("modernbert").longest is None is built("esm").longest
    assert built("roberta").longest == 511  # counts from 1
    with torch.no_grad(): built("roberta")(collate([prefix_example("", "a" * 510, LETTERS)]), torch.zeros(1, 8))


def test_a_decoder_writes_from_left_to_right_and_an_encoder_does_not():
    def built(kind):
        torch.manual_seed(0)
        network = dict(network="hugging_face", network_config=kind)
        return Autoregressive(LETTERS, AutoregressiveConfig(size="pico", max_length=8, **network))
    assert len(draws(built("gpt2"))) == 12
    with pytest.raises(ValueError, match="network='hugging_face': later columns change"): built("bert")


def test_a_retrofit_starts_from_our_transformer():
    network = dict(network="hugging_face", network_config="bert")
    masked = MaskedDiffusion(LETTERS, MaskedConfig(size="pico", max_length=12, **network))
    with pytest.raises(ValueError, match="masked: has a network 'hugging_face'"): retrofit(masked)
    ours = MaskedDiffusion(LETTERS, MaskedConfig(size="pico", max_length=12))
    with pytest.raises(ValueError, match="network='hugging_face': a retrofit has that of the masked model"):
        retrofit(ours, network="hugging_face", adapters=False)


def test_without_transformers_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r"pip install 'loflexmdm\[transformers\]'") as e: flexmdm("bert")
    assert "\n" not in str(e.value)
    assert FlexMDM(LETTERS, FlexMDMConfig(size="pico")).backbone.width == 16


# what a stranger's model asks for

ASKED = {
    "hidden_size": ("bert", 10**6, "weights of another model: "),
    "intermediate_size": ("esm", 10**9, "weights of another model: "),
    "max_position_embeddings": ("bert", 10**10, "weights of another model: "),
    "num_hidden_layers": ("modernbert", 10**10, "num_hidden_layers=10000000000: at most 10,000 layers"),
    "type_vocab_size": ("bert", 10**10, "weights of another model: "),
    "hidden_act": ("bert", "nonsense", "nonsense"),
    "hidden_activation": ("modernbert", "nonsense", "nonsense"),
}


def tampered(path, kind, **settings):
    "A saved model whose settings of the encoder were changed, as by a stranger; without digests of its own."
    save_method(flexmdm(kind), path)
    saved = json.loads((path / "config.json").read_text())
    saved["config"]["network_config"] = json.dumps(json.loads(saved["config"]["network_config"]) | settings)
    saved.pop("digest")
    (path / "config.json").write_text(json.dumps(saved))
    return path


def loaded(path):
    "What loading a model says, empty if it is loaded, and the MB of memory by which the most of this process grew."
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    told = ""
    try: loflexmdm.load(path)
    except ValueError as e: told = str(e)
    return told, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


@pytest.mark.parametrize("key", ASKED)
def test_what_the_weights_do_not_hold_is_refused_before_it_is_allocated(key, tmp_path):
    kind, value, message = ASKED[key]
    told, taken = loaded(tampered(tmp_path / "model", kind, **{key: value}))
    assert message in told and "\n" not in told
    assert taken < 200


@pytest.mark.parametrize("kind, settings, message", [
    ("bert", dict(hidden_size=10**6), "weights; at most 1,073,741,824 are allowed; set LOFLEXMDM_MAX_WEIGHTS"),
    ("bert", dict(max_position_embeddings=10**10), "encoder: 180,000,.* weights; at most"),
    ("esm", dict(intermediate_size=10**9), "weights; at most"),
    ("bert", dict(hidden_act="nonsense"), "hidden_act='nonsense' is unknown to transformers$"),
    ("bert", dict(hidden_size=-4), "negative dimension"),
    ("bert", dict(num_attention_heads=0), "zero"),
])
def test_a_configuration_that_cannot_be_trained_is_refused_before_it_is_allocated(kind, settings, message):
    asked = json.dumps(sized_config(kind, "pico").to_dict() | settings)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=f"^network_config='{kind}': .*{message}") as e: flexmdm(asked)
    assert "\n" not in str(e.value)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < 200


def test_an_encoder_may_have_as_many_weights_as_a_variable_says(monkeypatch):
    outline = built("bert").encoder
    numbers = sum(v.numel() for v in (*outline.parameters(), *outline.buffers()))
    pooler = 16 * 16 + 16  # which is made, and dropped
    monkeypatch.setenv(WEIGHTS.variable, str(numbers + pooler))
    assert torch.equal(built("bert").token.weight, outline.get_input_embeddings().weight)
    monkeypatch.setenv(WEIGHTS.variable, str(numbers + pooler - 1))
    with pytest.raises(ValueError, match=f"encoder: {numbers + pooler:,} weights"): built("bert")


def test_labels_that_an_encoder_has_no_use_for_take_no_memory(tmp_path):
    told, taken = loaded(tampered(tmp_path / "model", "bert", num_labels=10**7))
    assert not told and taken < 200


def test_tables_beside_the_weights_are_refused_before_they_are_allocated(tmp_path):
    told, taken = loaded(tampered(tmp_path / "model", "esm", max_position_embeddings=10**10))
    assert "numbers beside the weights" in told and taken < 200


@pytest.mark.parametrize("name", [n for n, cls in of_package(METHODS.all()).items() if hasattr(cls.Config, "network")])
def test_every_method_can_be_made_without_memory(name):
    options = dict(network="hugging_face", network_config="bert", size="pico", max_length=12)
    config = METHODS[name].Config(**options)
    with torch.device("meta"): method = METHODS[name](LETTERS, config)
    assert all(value.is_meta for value in method.backbone.parameters())


@pytest.mark.parametrize("bars", [True, False])
def test_transformers_says_nothing_while_it_is_quiet_and_as_much_as_before_afterwards(bars):
    logs = hugging_face().logging
    before, shown = logs.get_verbosity(), logs.is_progress_bar_enabled()
    try:
        logs.set_verbosity_info()
        (logs.enable_progress_bar if bars else logs.disable_progress_bar)()
        with silence_transformers():
            assert (logs.get_verbosity(), logs.is_progress_bar_enabled()) == (logging.ERROR, False)
        assert (logs.get_verbosity(), logs.is_progress_bar_enabled()) == (logging.INFO, bars)
    finally:
        logs.set_verbosity(before)
        (logs.enable_progress_bar if shown else logs.disable_progress_bar)()
