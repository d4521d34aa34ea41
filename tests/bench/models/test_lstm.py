"""The language model: the paper's sizes and costs, a state that goes on where it was, and resizing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from helpers import half
from meristem import Live, Space, count_macs, count_params, trace
from meristem_bench.models.lstm import LstmLm, lstm_large, lstm_medium, lstm_small

UNROLL = 2  # reading the model takes time for every word


@pytest.fixture(scope="module")
def large() -> Space:
    with torch.device("meta"):
        model = lstm_large()
    return traced(model, torch.zeros(1, UNROLL, dtype=torch.long, device="meta"))


def traced(model: nn.Module, tokens: torch.Tensor) -> Space:
    return trace(model, tokens, pin="embedding", carried=1)


def words(*shape: int, classes: int = 50) -> torch.Tensor:
    return torch.randint(0, classes, shape, generator=torch.Generator().manual_seed(1))


def small(keep: float = 1.0) -> LstmLm:
    torch.manual_seed(0)
    return LstmLm(50, 12, (10, 8), keep, init_range=0.5)


def test_only_hidden_units_grow(large: Space) -> None:
    assert large.full == {"first": 1500, "second": 1500}


def test_the_costs_are_the_papers(large: Space) -> None:
    """66.0M dense; (310, 275) has 20.6M; (373, 315) 21.8M, and 13.4 % of the macs of LSTMs and softmax."""
    assert count_params(large) / 1e6 == pytest.approx(66.0, abs=0.05)
    assert count_macs(large) == UNROLL * (2 * 4 * 1500 * 3000 + 1500 * 10_000)
    ours, iss = {"first": 310, "second": 275}, {"first": 373, "second": 315}
    assert count_params(large, ours) / 1e6 == pytest.approx(20.6, abs=0.06)
    assert count_params(large, iss) / 1e6 == pytest.approx(21.8, abs=0.05)
    assert count_macs(large, iss) / count_macs(large) == pytest.approx(0.134, abs=0.0005)
    assert count_macs(large, ours) / count_macs(large) == pytest.approx(0.1105, abs=0.0001)


def test_a_share_of_the_macs_is_the_same_share_of_the_parameters_that_can_grow(large: Space) -> None:
    fixed = 10_000 * 1500 + 10_000
    for widths in ({"first": 310, "second": 275}, {"first": 900, "second": 40}):
        params = (count_params(large, widths) - fixed) / (count_params(large) - fixed)
        assert params == pytest.approx(count_macs(large, widths) / count_macs(large), abs=5e-4)


@pytest.mark.parametrize(
    ("make", "params", "keep", "init_range"),
    [(lstm_small, 4_653_200, 1.0, 0.1), (lstm_medium, 19_780_400, 0.5, 0.05), (lstm_large, 66_034_000, 0.35, 0.04)],
)
def test_the_published_sizes(make: Callable[..., LstmLm], params: int, keep: float, init_range: float) -> None:
    with torch.device("meta"):
        model = make()
    assert sum(parameter.numel() for parameter in model.parameters()) == params
    assert model.dropout.p == 1 - keep
    torch.manual_seed(0)
    for parameter in make(classes=200).parameters():
        assert -init_range <= parameter.min() < -0.8 * init_range
        assert 0.8 * init_range < parameter.max() <= init_range


def test_a_text_in_chunks_with_the_state_carried_on_gives_what_the_whole_gives() -> None:
    model, tokens = small().double().eval(), words(3, 11)
    whole, _ = model(tokens)
    parts, state = [], None
    for chunk in tokens.split(4, dim=1):
        scores, state = model(chunk, state)
        parts.append(scores)
    assert whole.shape == (3, 11, 50)
    torch.testing.assert_close(torch.cat(parts, dim=1), whole)


def test_dropout_stands_between_layers_and_not_between_words() -> None:
    """With everything dropped, nothing goes up any more, but the states still go on from word to word."""
    model = small().train()
    model.dropout.p = 1.0
    scores, (first, second) = model(words(2, 6))
    torch.testing.assert_close(scores, model.decoder.bias.expand(2, 6, 50))
    _, (later, above) = model(words(2, 6), (first, second))
    assert not torch.equal(first[0], later[0])
    assert not torch.equal(second[1], above[1])


def test_resized_by_half_it_goes_on_with_a_state_of_its_new_size() -> None:
    model, tokens = small().eval(), words(3, 5)
    space = traced(model, tokens[:1])
    live = Live(model, space)
    live.apply(live.plan(half(space)))
    _, state = model(tokens)
    scores, (first, second) = model(tokens, state)
    assert scores.shape == (3, 5, 50)
    assert [part.shape for part in (*first, *second)] == [(1, 3, 5)] * 2 + [(1, 3, 4)] * 2
    assert sum(p.numel() for p in model.parameters()) == count_params(space, live.widths)
