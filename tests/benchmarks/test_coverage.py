"""A sample of the sweep over the models of transformers, and what its page says."""

from __future__ import annotations

import pytest

from benchmarks.coverage import starts
from benchmarks.coverage.judge import Verdict, classes, judge
from benchmarks.coverage.page import of_architecture, page

pytest.importorskip("transformers")

SAMPLE = {
    "albert": "AlbertModel",
    "bart": "BartModel",
    "beit": "BeitModel",
    "bert": "BertModel",
    "bloom": "BloomModel",
    "bridgetower": "BridgeTowerModel",
    "clip": "CLIPTextModel",
    "codegen": "CodeGenModel",
    "convbert": "ConvBertModel",
    "cvt": "CvtModel",
    "deberta": "DebertaModel",
    "deberta_v2": "DebertaV2Model",
    "deit": "DeiTModel",
    "distilbert": "DistilBertModel",
    "electra": "ElectraModel",
    "falcon": "FalconModel",
    "flaubert": "FlaubertModel",
    "fsmt": "FSMTModel",
    "funnel": "FunnelModel",
    "gemma2": "Gemma2Model",
    "git": "GitModel",
    "gpt2": "GPT2Model",
    "gpt_neo": "GPTNeoModel",
    "gpt_neox": "GPTNeoXModel",
    "gptj": "GPTJModel",
    "imagegpt": "ImageGPTModel",
    "lilt": "LiltModel",
    "llama": "LlamaModel",
    "mistral": "MistralModel",
    "mpnet": "MPNetModel",
    "mpt": "MptModel",
    "openai": "OpenAIGPTModel",
    "opt": "OPTModel",
    "phi": "PhiModel",
    "qwen2": "Qwen2Model",
    "roberta": "RobertaModel",
    "roformer": "RoFormerModel",
    "squeezebert": "SqueezeBertModel",
    "swin": "SwinModel",
    "t5": "T5Model",
    "vit": "ViTModel",
    "xglm": "XGLMModel",
    "xlnet": "XLNetModel",
}


@pytest.mark.filterwarnings("ignore")  # of the models
@pytest.mark.parametrize("architecture", list(SAMPLE))
def test_a_model_of_transformers_patched_with_plain_softmax_is_itself(architecture: str) -> None:
    cls = next(one for one in classes(architecture) if one.__name__ == SAMPLE[architecture])
    found = judge(architecture, cls)
    assert (found.kind, found.detail) == ("exact", "")
    assert found.sites


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("architecture", "name"), [("longformer", "LongformerModel"), ("led", "LEDModel")])
def test_attention_over_blocks_is_refused_when_it_is_patched(architecture: str, name: str) -> None:
    found = judge(architecture, next(one for one in classes(architecture) if one.__name__ == name))
    assert found.kind == "refused"
    assert "computes the softmax of attention by itself" in found.detail


def test_the_page_counts_an_architecture_by_its_worst_class() -> None:
    verdicts = [
        Verdict("bert", "BertModel", "exact"),
        Verdict("bert", "BertForMaskedLM", "unrun", "needs more"),
        Verdict("led", "LEDModel", "refused", "over a window"),
        Verdict("led", "LEDForX", "exact"),
        Verdict("resnet", "ResNetModel", "without", "no attention found"),
        Verdict("timm", "TimmModel", "unbuilt", "needs timm"),
    ]
    assert of_architecture(verdicts[2:4]) == "refused"
    written = page(verdicts, "5.0", 9)
    assert "| exact | 1 | 2 |" in written
    assert "| refused | 1 | 1 |" in written
    assert "| led | LEDModel | over a window |" in written
    assert "## Not built or not run: 1" in written


STARTED = {"bert": 2, "gpt2": 2, "llama": 2, "opt": 2, "vit": 2}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("architecture", list(STARTED))
def test_a_model_of_transformers_gets_a_clear_start(architecture: str) -> None:
    found = _start(architecture)
    assert (found.kind, found.detail, found.sites) == ("started", "", STARTED[architecture])


@pytest.mark.filterwarnings("ignore")
def test_what_a_start_leaves_alone_is_told_or_refused() -> None:
    albert, qwen, resnet = (_start(name) for name in ("albert", "qwen3", "resnet"))
    assert albert.kind == "partly"
    assert "layers share them" in albert.detail
    assert qwen.kind == "refused"
    assert "norms q behind W_Q" in qwen.detail
    assert resnet.kind == "without"


def _start(architecture: str) -> Verdict:
    names = sorted(classes(architecture), key=lambda cls: (not cls.__name__.endswith("Model"), len(cls.__name__)))
    return starts.judge_start(architecture, names[0])


def test_the_page_of_starts_counts_what_was_left_alone() -> None:
    verdicts = [
        Verdict("bert", "BertModel", "started"),
        Verdict("albert", "AlbertModel", "partly", "the logits are as they were: shared."),
        Verdict("resnet", "ResNetModel", "without", "no attention found"),
        Verdict("timm", "TimmModel", "unbuilt", "needs timm"),
    ]
    written = starts.page(verdicts, "5.0", 9)
    assert "Of 2 that attend and run, 1 start as asked, 1 in part, 0 are refused, 0 go wrong;" in written
    assert "5 were not tried" in written
    assert "| albert | AlbertModel | the logits are as they were: shared. |" in written
