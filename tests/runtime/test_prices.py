"""What responses cost: exact, from the row that fits, and unknown where it is not known."""

import json
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basis_daemon.runtime.agent_config import AgentConfig
from basis_daemon.runtime.prices import PriceList, UnusablePrices, cost_of, read_prices, shipped_prices
from basis_daemon.runtime.providers.base import TokenUsage
from basis_daemon.runtime.providers.scripted import ScriptedProvider, text
from basis_daemon.runtime.runtime import Runtime
from basis_protocol.events import AnyEvent, Usage, UsageReported

TODAY = date(2026, 12, 1)


def prices(*rows: dict[str, Any]) -> PriceList:
    return read_prices(json.dumps({"schema": 1, "prices": [{"provider": "p", **row} for row in rows]}).encode())


PLAIN = {"model": "m", "input": "3", "output": "15", "cache_read": "0.30", "cache_write": "3.75"}


def test_every_kind_of_token_has_its_own_price() -> None:
    """2.6: cache counts are inside the input, reasoning inside the output, thoughts beside it."""
    usage = Usage(
        input_tokens=1_000_000,
        cache_read_tokens=600_000,
        cache_creation_tokens=100_000,
        output_tokens=200_000,
        reasoning_tokens=150_000,
        thoughts_tokens=50_000,
    )
    dollars = (
        Decimal("0.3") * 3 + Decimal("0.6") * Decimal("0.30") + Decimal("0.1") * Decimal("3.75") + Decimal("0.25") * 15
    )
    assert prices(PLAIN).cost("p", "m", usage) == int(dollars * 10**9)


@pytest.mark.parametrize("model", ["m", "m-20260131", "m-2026-01-31"])
def test_a_dated_snapshot_costs_what_its_model_does(model: str) -> None:
    assert prices(PLAIN).cost("p", model, Usage(input_tokens=2)) == 6000


@pytest.mark.parametrize(
    ("provider", "model"), [("p", "m-mini"), ("p", "n"), ("q", "m"), ("p@https://gw:443", "m"), ("p", "")]
)
def test_what_is_in_no_row_has_no_price(provider: str, model: str) -> None:
    """Unknown says unknown: an endpoint under a vendor's name is not the vendor."""
    assert prices(PLAIN).cost(provider, model, Usage(input_tokens=5)) is None


def test_a_kind_of_token_without_a_price_makes_the_cost_unknown_only_if_there_are_any() -> None:
    bare = prices({"model": "m", "input": "1", "output": "2"})
    assert bare.cost("p", "m", Usage(input_tokens=10, output_tokens=1)) == 12_000
    assert bare.cost("p", "m", Usage(input_tokens=10, cache_read_tokens=1)) is None


def test_a_long_prompt_is_priced_as_a_whole_by_the_next_row_or_not_at_all() -> None:
    long = {**PLAIN, "input": "6"}
    tiered = prices({**PLAIN, "up_to_input_tokens": 100}, long)
    assert [tiered.cost("p", "m", Usage(input_tokens=count)) for count in (100, 101)] == [300_000, 606_000]
    assert prices({**PLAIN, "up_to_input_tokens": 100}).cost("p", "m", Usage(input_tokens=101)) is None


def test_a_price_that_ends_is_followed_by_the_next() -> None:
    listed = prices({**PLAIN, "until": "2026-12-31"}, {**PLAIN, "input": "9"})
    usage = Usage(input_tokens=1)
    assert listed.cost("p", "m", usage, on=date(2026, 12, 31)) == 3000
    assert listed.cost("p", "m", usage, on=date(2027, 1, 1)) == 9000


def test_a_persons_own_rows_go_first_and_may_say_that_a_price_is_not_known() -> None:
    own = prices({"model": "m", "input": "1", "output": "1"}, {"model": "gone-*"})
    both = own.over(prices(PLAIN, {**PLAIN, "model": "gone-*"}))
    assert both.cost("p", "m", Usage(input_tokens=1)) == 1000
    assert both.cost("p", "gone-1", Usage(input_tokens=1)) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"schema": 2, "prices": []}',
        '{"schema": 1, "prices": [], "currency": "EUR"}',
        '{"schema": 1, "prices": [{"provider": "p", "model": "m", "input": 3}]}',
        '{"schema": 1, "prices": [{"provider": "p", "model": "m", "input": "-1", "output": "2"}]}',
        '{"schema": 1, "prices": [{"provider": "p", "model": "m", "input": "NaN", "output": "2"}]}',
        '{"schema": 1, "prices": [{"provider": "p", "model": "m", "inputs": "1"}]}',
        '{"schema": 1, "prices": [{"provider": "p", "model": "m", "input": "1e999", "output": "2"}]}',
        '{"schema": 1, "prices": [{"provider": "p", "model": "m", "input": "1", "output": "1000000.01"}]}',
        '{"schema": 1, "prices": [{"provider": "p", "model": "m", "up_to_input_tokens": 0}]}',
    ],
)
def test_a_list_that_can_not_be_understood_is_refused_whole(text: str) -> None:
    with pytest.raises(UnusablePrices):
        read_prices(text.encode())


def test_the_shipped_prices_are_read_and_every_row_says_when_and_where_it_was_read() -> None:
    rows = shipped_prices().rows
    assert len(rows) > 30 and all(row.as_of and row.source for row in rows)
    assert (
        shipped_prices().cost("anthropic", "claude-opus-4-5-20251101", Usage(input_tokens=1_000_000), on=TODAY)
        == 5 * 10**9
    )
    assert shipped_prices().cost("ollama", "qwen3:8b", Usage(input_tokens=99)) == 0
    assert shipped_prices().cost("ollama", "glm-5:cloud", Usage(input_tokens=99)) is None


def test_no_shipped_row_is_hidden_by_one_before_it() -> None:
    """A row that could never be reached would be a mistake in the file."""
    seen: set[tuple[str, str]] = set()
    for row in shipped_prices().rows:
        assert (row.provider, row.model) not in seen, row
        if row.up_to_input_tokens is None and row.until is None:
            seen.add((row.provider, row.model))


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("reported", "cost"),
    [
        (TokenUsage(input_tokens=100, output_tokens=10), 100 * 3000 + 10 * 15_000),
        (TokenUsage(input_tokens=100, output_tokens=10, tool_input_tokens=40), 140 * 3000 + 10 * 15_000),
        (TokenUsage(input_tokens=100, output_tokens=10, thoughts_tokens=5), 100 * 3000 + 15 * 15_000),
        (TokenUsage(input_tokens=0, output_tokens=0), 0),
        (TokenUsage(output_tokens=10), None),
        (TokenUsage(input_tokens=100), None),
        (TokenUsage(total_tokens=110), None),
    ],
)
async def test_a_response_that_was_counted_in_part_has_no_known_cost(reported: TokenUsage, cost: int | None) -> None:
    """2.6: what was not counted is not nothing; what a vendor's tools read is paid for."""
    listed = prices({**PLAIN, "model": "*"})

    def pricing(provider: str, model: str, usage: Usage) -> int | None:
        return listed.cost("p", model, usage)

    model = ScriptedProvider([text("hi", usage=reported)])
    async with await Runtime.empty_builder().with_provider_instance(model).with_model("m").build_async() as runtime:
        agent, seen = runtime.spawn(config=AgentConfig(pricing=pricing)), list[AnyEvent]()
        agent.events.tap(seen.append)
        report = await agent.send("hello")
    (event,) = [event for event in seen if isinstance(event, UsageReported)]
    assert event.cost_nano_usd == cost
    assert report.usage.priced_tokens == (0 if cost is None else report.usage.total_tokens)


@given(
    price=st.from_regex(r"[0-9]{0,9}(\.[0-9]{0,40})?(e-?[0-9]{1,9})?", fullmatch=True),
    count=st.integers(0, 2**53),
)
def test_every_price_that_is_taken_gives_a_cost_that_can_be_written(price: str, count: int) -> None:
    try:
        listed = prices({"model": "m", "input": price, "output": "1"})
    except UnusablePrices:
        return
    cost = listed.cost("p", "m", Usage(input_tokens=count))
    assert cost is not None and 0 <= cost <= count * 10**9


@given(
    input_tokens=st.integers(0, 10**7),
    read=st.integers(0, 10**6),
    written=st.integers(0, 10**6),
    output=st.integers(0, 10**6),
)
def test_costs_add_up_to_the_last_billionth(input_tokens: int, read: int, written: int, output: int) -> None:
    """A session's cost is the sum of its responses', whatever the order; more tokens never cost less."""
    price = prices(PLAIN).rows[0]
    whole = input_tokens + read + written
    usage = Usage(input_tokens=whole, cache_read_tokens=read, cache_creation_tokens=written, output_tokens=output)
    cost = cost_of(price, usage)
    assert cost == input_tokens * 3000 + read * 300 + written * 3750 + output * 15_000
    twice = usage + usage
    assert cost_of(price, twice) == 2 * cost
