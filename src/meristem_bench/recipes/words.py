"""Language models on words: Penn Treebank, or WikiText-2 in its place, with the settings of Zaremba et al. (2014)."""

from __future__ import annotations

from meristem.control.budget import Budget
from meristem_bench.data.words import Words, word_files
from meristem_bench.models.lstm import lstm_large, lstm_medium, lstm_small
from meristem_bench.runs import DataConfig, Dropout, GrowthConfig, OptimizerConfig, Run
from meristem_bench.runs.lr_schedule import Cosine, Decay
from meristem_bench.runs.task import LanguageModel

# Every weight that hidden units make or read is used once a word, and the embedding has no macs. So a share of the macs
# is, but for a few biases, the same share of the parameters that can grow, whatever the vocabulary is.

# Epochs are few and long, and the learning rate is halved every epoch from the fifth of thirteen on: what is pruned
# later has no time to heal (docs/log.md).
_EARLY = "default:start=0.5:grow_until=0.07:peak=2.2:hold_until=0.16:land_at=0.3:freeze=0.31"


def ptb_small() -> Run:
    return Run(
        name="ptb-small",
        about="Two LSTM layers of 200 units on Penn Treebank or WikiText-2, 13 epochs.",
        model=lstm_small,
        load=load,
        task=LanguageModel(),
        epochs=13,
        batch=20,
        optimizer=OptimizerConfig(lr=1.0, schedule=Decay(2, 4, 13), momentum=0.0, clip=5.0),
        growth=GrowthConfig(Budget(macs="33%"), _EARLY, pin="embedding"),
        dropout=Dropout(keep=0.8, keep_dense=1.0),
        data=DataConfig(unroll=20),
    )


def ptb_medium() -> Run:
    return ptb_small().replace(
        name="ptb-medium",
        about="Two LSTM layers of 650 units on Penn Treebank or WikiText-2, 39 epochs.",
        model=lstm_medium,
        epochs=39,
        rate=Decay(1.2, 6, 39),
        method="default",
        unroll=35,
        keep=0.65,
        keep_dense=0.5,
    )


def ptb_large() -> Run:
    """The budget is the network the paper found: hidden sizes of 310 and 275."""
    return ptb_medium().replace(
        name="ptb-large",
        about="Two LSTM layers of 1500 units on Penn Treebank or WikiText-2, 55 epochs.",
        model=lstm_large,
        epochs=55,
        rate=Decay(1.15, 14, 55),
        clip=10.0,
        keep_dense=0.35,
        budget=Budget(macs="11.05%"),
    )


# --- short ones: the same network, budget and vocabulary, fewer words and epochs ---


def ptb_small_short() -> Run:
    return _short(ptb_small(), 100_000)


def ptb_medium_short() -> Run:
    return _short(ptb_medium(), 40_000)


def ptb_large_short() -> Run:
    return _short(ptb_large(), 20_000)


def _short(run: Run, words: int) -> Run:
    about = f"The same in minutes on two cores: the first {words:,} words, 12 epochs.".replace(",", " ", 1)
    return run.replace(
        name=f"{run.name}-short",
        about=about,
        epochs=12,
        rate=Cosine(),
        samples=words,
        method="default",
    )


# --- data ---


def load(run: Run) -> Words:
    config = run.data
    if config.data_dir is None:
        raise ValueError(
            "give the folder that holds ptb.train.txt, wiki.train.tokens or train.txt and the valid and test files "
            "beside it: --data DIR"
        )
    if config.held_out or config.size:
        raise ValueError("words come with splits of their own: leave out held_out and size")
    words = word_files(config.data_dir, config.unroll, config.samples)
    if config.classes not in (0, words.classes):
        raise ValueError(f"the training file has {words.classes} different words: leave out classes={config.classes}")
    return words
