"""What a column is, by its name: a counter, an epoch, a rate, a loss, a metric of which more is better, or something else."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Literal

from eureka.errors import UnknownNameError

Role = Literal["train", "validation", "other"]

ROWS = "row number"
"""The name of the step when a log has none."""
OF = " of"
"""``iteration 100/5000`` is two columns: ``iteration`` and ``iteration of``."""
BATCH = "batch"
"""The name of a counter that stands without one, as in ``[ 50/312]``."""
UNNAMED = "value"
"""The name of a number beside a count, which has none."""
INDEX = "index"
"""The name of a column without one that comes first, and of a number with which lines start."""

WHAT = r"(train|training|valid|val|trainer|opt\w*|env|gradient|current|cur|total|num|n|log)"
COUNTERS = (
    rf"({WHAT}_)*(global_(steps?|iter(ation)?s?)(_max_steps)?|num_updates|nupdates)",
    rf"({WHAT}_)*(steps?|timesteps?|updates?|upd?)(_num|_number|_id|_idx)?",
    rf"({WHAT}_)*(iter(ation)?s?|it|itr|batch(es)?|minibatch(es)?|s)(_num|_number|_id|_idx|_i)?",
    r"(\w+_)?(tokens|samples|examples|frames|images|sequences)(_seen|_processed|_consumed)?",
    rf"({WHAT}_)*(epochs?|ep|episodes?|rounds?|generations?)(_num|_number|_id|_idx)?|t|x|index|unnamed0?",
)
"""Names of counters, the best first: each pattern is tried on all columns before the next."""
EPOCH = rf"({WHAT}_)*(epochs?|ep)(_num|_number|_id|_idx)?"
RATE = r"(\w+_)?(lr\d*|learn(ing)?_rate)(_\w+)?"


_cached = lru_cache(maxsize=4096)  # a log asks for the same few names again and again


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


TRAIN = {"train", "training", "trn", "tr", "trl", "learn"}
VALIDATION = {"val", "valid", "validation", "eval", "evaluation", "test", "testing", "dev", "heldout", "holdout", "vl", "tel"}
LOSS = _set(
    """
    loss losses nll nlls ce bce xent xentropy crossentropy perplexity ppl bpb bpc bpd bits nats mse rmse mae mape error err cost
    objective wer cer ter fid lpips nelbo kl regret residual energy trl tel
    """
)
RISING = _set(
    """
    acc accuracy accuracies top f1 auc auroc auprc bleu sacrebleu rouge rougel rougelsum meteor cider chrf map ap ar mrr ndcg
    hits em precision prec recall sensitivity specificity score scores reward rewards rew return returns r2 psnr ssim snr sdr
    iou miou dice jaccard mcc kappa success correct pass win winrate elo spearman spearmanr pearson pearsonr nmi ari
    hella hellaswag hel mmlu gsm ents uas las likelihood loglik loglikelihood
    """
)
SIGNED = {"elbo"}
"""What is maximised, and is often logged with its sign turned: the values tell which."""
MAXIMISED = _set("elbo likelihood loglik loglikelihood")
TURNED = {"neg", "negative", "minus"}
ASIDE = _set(
    """
    time times runtime seconds second sec secs ms per speed throughput flops tflops memory mem gpu cpu wall elapsed eta date
    timestamp wps ups bsz wpb grad gradient gnorm norm norms scale scaler seed std stdev stderr var min max best lowest highest
    worst from previous prev num number count size weight weights coef coefficient
    patience threshold margin temperature target params parameters interval freq every fn function rank reader lr mom momentum
    wd decay beta dropout
    """
)
"""A column with one of these words is not judged, whatever else its name says."""
CHANGED = _set("improved improve decreased increased reduced")
"""So is one with such a word behind its first: ``val_loss improved``, but not ``reduced_train_loss``, which is a mean."""
NORMS = {"l1", "l2"}
"""Distances that are losses beside nothing but a role, as in LightGBM's ``valid_1's l2``."""
LOADING = {"batch", "data", "reader"}
"""What costs time and not loss, as in ``batch_cost``."""
RUN = (
    r"(\w+_)?runs?(_?(id|name|hash|uuid|key|number))?|exp(eriment)?(_(id|name|key))?|trial(_id)?|seed|fold|name|id|job(_id)?"
    r"|model(_name)?|worker|replica|rank|config"
)
SPLIT = r"(\w+_)?(mode|split|phase|stage|subset|partition)|set|dataset|type|kind|event|category|role"
METRIC = r"(\w+_)?metrics?(_?name)?|tag|key|variable|measure|series"
VALUE = r"(\w+_)?(metric_?)?values?|y|scalar"
FINAL = {"final", "best", "last"}
SETTINGS = {"params", "param", "hparams", "hyperparameters", "config"}


@_cached
def words(name: str) -> tuple[str, ...]:
    """The words of a name, in small letters.

    >>> words("train/lossAvg"), words("metrics/mAP50-95(B)"), words("Acc@1"), words("valLoss")
    (('train', 'loss', 'avg'), ('metrics', 'map50', 'b'), ('acc',), ('val', 'loss'))
    """
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z])", "_", name[:200])
    return tuple(re.findall(r"[a-z]+\d*", apart.lower().replace("cross-entropy", "crossentropy").replace("cross_entropy", "ce")))


def joined(name: str) -> str:
    return "_".join(words(name))


def _stems(name: str) -> set[str]:
    """The words of a name, also without their digits: ``acc1`` is an ``acc``."""
    return {*words(name), *(word.rstrip("0123456789") for word in words(name))}


@_cached
def rank(name: str) -> int | None:
    """How good a counter a column is by its name, 0 the best; None if it is none.

    >>> [rank(name) is not None for name in ("global_step", "progress.step", "Step (updates)", "time/total_timesteps", "#")]
    [True, True, True, True, True]
    >>> [rank(name) is not None for name in ("sec/step", "step (ms)", "loss/epoch", "max_steps")]
    [False, False, False, False]
    """
    found = (i for text in _counter_names(name) for i, pattern in enumerate(COUNTERS) if re.fullmatch(pattern, text))
    return next(found, None)


def _counter_names(name: str) -> Iterator[str]:
    """The ways to read a name as that of a counter: as it is, without a unit behind it, and without the group that it is in."""
    yield INDEX if name.strip() == "#" else joined(name)
    plain = re.sub(r"\s*\([^()]*\)$", "", name)
    if plain != name and not is_aside(name):
        yield joined(plain)
    grouped = re.fullmatch(r"(?P<group>.+)[./](?P<counter>\w{4,})", name)
    if grouped is not None and not is_metric(grouped["group"]):
        timed = grouped["group"] == "time" and grouped["counter"].endswith("s")  # stable-baselines counts below ``time``
        if timed or not is_aside(grouped["group"]):
            yield joined(grouped["counter"])


@_cached
def is_epoch(name: str) -> bool:
    return any(re.fullmatch(EPOCH, text) for text in _counter_names(name))


@_cached
def is_rate(name: str) -> bool:
    return re.fullmatch(RATE, joined(name)) is not None


@_cached
def is_aside(name: str) -> bool:
    """Whether a column is certainly no curve to judge: a time, a norm, a running best, a W&B limit.

    >>> is_aside("samples_per_second"), is_aside("bits_per_byte")
    (True, False)
    """
    found = tuple(word for word in words(name) if word != "per") if {"bits", "nats"} & set(words(name)) else words(name)
    return (
        name.endswith(("__MIN", "__MAX", OF))
        or bool(set(found) & ASIDE or set(found[1:]) & CHANGED or ("cost" in found and set(found) & LOADING))
        or is_rate(name)
    )


@_cached
def is_loss(name: str) -> bool:
    """
    >>> [is_loss(name) for name in ("lm loss", "val/ce", "CELoss", "train", "loss_cls", "reduced_train_loss")]
    [True, True, True, True, True, True]
    >>> [is_loss(name) for name in ("loss scale", "best_val_loss", "val_loss improved from", "accuracy")]
    [False, False, False, False]
    """
    if is_aside(name):
        return False
    turned = bool(_stems(name) & MAXIMISED and _stems(name) & TURNED)
    return bool(_stems(name) & LOSS) or any(word.endswith("loss") for word in words(name)) or is_bare_role(name) or turned


@_cached
def is_bare_role(name: str) -> bool:
    """``train`` and ``val`` alone, which are mostly losses; also ``training's l2``."""
    found = set(words(name)) - NORMS - {"s"}
    return bool(found) and found <= TRAIN | VALIDATION


@_cached
def is_rising(name: str) -> bool:
    """
    >>> [is_rising(name) for name in ("val_acc", "top5_acc", "mAP50", "loss", "Rouge-L", "r2", "accuracy_loss")]
    [True, True, True, False, True, True, False]
    """
    return not is_aside(name) and bool(_stems(name) & RISING) and not is_loss(name)


@_cached
def is_signed(name: str) -> bool:
    """Whether only the values of a column tell if more is better, as of an ELBO.

    >>> [is_signed(name) for name in ("val_elbo", "neg_elbo", "log_likelihood", "loss")]
    [True, False, False, False]
    """
    return not is_aside(name) and bool(_stems(name) & SIGNED) and not is_loss(name) and not is_rising(name)


@_cached
def is_metric(name: str) -> bool:
    return is_loss(name) or is_rising(name) or is_signed(name)


@_cached
def role_of(name: str) -> Role:
    """
    >>> role_of("train/loss"), role_of("valid_ppl"), role_of("loss")
    ('train', 'validation', 'other')
    """
    found = set(words(name))
    return "validation" if found & VALIDATION else "train" if found & TRAIN else "other"


@_cached
def base_of(name: str) -> str:
    """The name of a metric without its role: what train and validation share.

    >>> base_of("train/loss") == base_of("val_loss") == base_of("Loss")
    True
    """
    plain = {"trl": "loss", "tel": "loss", "avg": "", "average": "", "mean": "", "value": "", "epoch": "", "step": ""}
    kept = [plain.get(word, word) for word in words(name) if word not in (TRAIN | VALIDATION) - {"trl", "tel"}]
    return "_".join(word for word in kept if word)


@_cached
def run_and_metric(name: str) -> tuple[str | None, str]:
    """A W&B export calls its columns ``run name - metric``.

    >>> run_and_metric("happy-lion-7 - train/loss"), run_and_metric("loss")
    (('happy-lion-7', 'train/loss'), (None, 'loss'))
    """
    run, dash, metric = name.rpartition(" - ")
    return (run.strip(), metric.strip()) if dash and metric.strip() else (None, name)


@_cached
def is_like(name: str, pattern: str) -> bool:
    return re.fullmatch(pattern, joined(name)) is not None


@_cached
def tells(name: str) -> bool:
    """Whether a column of text has the name of something that tells rows apart."""
    return any(is_like(name, pattern) for pattern in (RUN, SPLIT, METRIC))


def known(names: Sequence[str], wanted: str, kind: str = "column") -> str:
    if wanted not in names:
        raise UnknownNameError(kind, wanted, names)
    return wanted
