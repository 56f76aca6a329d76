"""Tests a provider's file against ours: what is read, what differs, and what is refused."""

import json

import pytest

from gateway.store.reconcile import Bill, BillError, compare, read_bill, sum_bill

USAGE = {
    "object": "page",
    "has_more": False,
    "data": [
        {
            "object": "bucket",
            "start_time": 1730419200,
            "end_time": 1730505600,
            "results": [
                {"model": "gpt-5-mini-2025-08-07", "input_tokens": 1000, "output_tokens": 500},
                {"model": "gpt-5-mini-2025-08-07", "input_tokens": 200, "output_tokens": 0},
            ],
        }
    ],
}
COSTS = {
    "data": [
        {
            "start_time": 1730419200,
            "results": [
                {"line_item": "gpt-5, input", "amount": {"value": 0.06, "currency": "usd"}},
                {"line_item": "gpt-5, output", "amount": {"value": 0.5, "currency": "usd"}},
            ],
        }
    ],
}
DAY = "2024-11-01"
FILES: list[tuple[str, Bill]] = [
    (
        json.dumps(USAGE),
        {(DAY, "gpt-5-mini-2025-08-07"): {"input_tokens": 1200, "output_tokens": 500}},
    ),
    (json.dumps([USAGE]), read_bill(json.dumps(USAGE).encode())),
    (json.dumps(COSTS), {(DAY, "gpt-5"): {"cost_usd": 0.56}}),
    (
        "start_time,start_time_iso,model,input_tokens,output_tokens\r\n"
        "1730419200,2024-11-01T00:00:00+00:00,gpt-5,7,3\r\n",
        {(DAY, "gpt-5"): {"input_tokens": 7, "output_tokens": 3}},
    ),
    (
        "\ufeffday,model,input_tokens,output_tokens,cost\n2024-11-01,m,1,2,0.25\n2024-11-01,m,1,,",
        {(DAY, "m"): {"input_tokens": 2, "output_tokens": 2, "cost_usd": 0.25}},
    ),
]


@pytest.mark.parametrize(("text", "bill"), FILES)
def test_files_of_providers(text: str, bill: Bill) -> None:
    assert read_bill(text.encode()) == bill


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no figures by day and model"),
        ('{"a": 1}', "with 'data'"),
        ('{"data": [', "no valid JSON"),
        (json.dumps(USAGE | {"has_more": True}), "the file ends before the last page"),
        ("day,model,input_tokens\n2024-11-01,m,-1", "line 2: input_tokens '-1': expected a number"),
        ("day,model,input_tokens\n2024-11-01,m,nan", "expected a number"),
        ("day,model,input_tokens\nyesterday,m,1", "line 2: no day"),
        ("day,input_tokens\n2024-11-01,1", "no model: group the export by model"),
        (json.dumps(COSTS).replace("usd", "eur"), "amounts are in eur"),
    ],
)
def test_what_is_no_bill(text: str, complaint: str) -> None:
    with pytest.raises(BillError, match=complaint):
        read_bill(text.encode())


def test_differences_by_day_and_model() -> None:
    theirs: Bill = {
        ("2026-01-01", "a"): {"input_tokens": 1000, "cost_usd": 1.0},
        ("2026-01-02", "b"): {"input_tokens": 50},
    }
    ours = sum_bill(
        [
            {"day": "2026-01-01", "model": "mine", "input_tokens": 995, "cost_usd": 0.5},
            {"day": "2026-01-02", "model": "mine", "input_tokens": 10, "output_tokens": 9},
            {"day": "2026-01-02", "model": "b", "input_tokens": 50},
            {"day": "2026-01-02", "model": "of another provider", "input_tokens": 99},
        ]
    )
    found = compare(theirs, ours, {"a": "mine"}, 0.01)
    assert [(each.day, each.model, each.kind, each.beyond) for each in found] == [
        ("2026-01-01", "mine", "input_tokens", False),
        ("2026-01-01", "mine", "cost_usd", True),
        ("2026-01-02", "b", "input_tokens", False),
        ("2026-01-02", "mine", "input_tokens", True),  # we counted what they did not bill
    ]
    assert found[1].share == 0.5


def test_two_of_their_names_for_one_model_of_ours_are_one_figure() -> None:
    theirs: Bill = {(DAY, "m-2026-01-01"): {"input_tokens": 30}, (DAY, "m"): {"input_tokens": 70}}
    ours = sum_bill([{"day": DAY, "model": "mine", "input_tokens": 100}])
    (found,) = compare(theirs, ours, {"m-2026-01-01": "mine", "m": "mine"}, 0.0)
    assert (found.model, found.ours, found.theirs, found.beyond) == ("mine", 100, 100, False)
