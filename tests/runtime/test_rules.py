"""Remembered rules as data: the matcher, the one spelling of a call, and which rule decides (runtime.md 6.5)."""

import json
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basis_daemon.runtime.rule_lookup import CallData, find
from basis_daemon.runtime.rules import (
    SCOPES,
    OperationDenied,
    RememberedRule,
    RuleOwner,
    canonical_data,
    matches_data,
)
from basis_daemon.runtime.session_rules import SessionAnswers
from basis_daemon.runtime.store.rules import VolatileRuleStore

TEXT = st.text(alphabet=st.sampled_from('ab*?"\\{}[],:/é\n\u2028😀'), max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=5), JSON, max_size=4)
RULES = st.lists(
    st.builds(
        RememberedRule,
        st.sampled_from(["write", "spawn"]),
        st.booleans(),
        st.sampled_from([None, "*", '{"body":"a*', '*"body":"ab"*', '*"a?"*', "nothing like it"]),
        st.none() | st.just("because"),
        st.sampled_from(SCOPES),
    ),
    max_size=6,
    unique_by=lambda rule: rule.address,
)


def slow_match(pattern: str, data: str) -> bool:
    """The data glob in the plainest way: all places in the data at which the pattern so far may end."""
    places = {0}
    for char in pattern:
        match char:
            case "*":
                places = set(range(min(places), len(data) + 1)) if places else places
            case "?":
                places = {at + 1 for at in places if at < len(data)}
            case _:
                places = {at + 1 for at in places if data[at : at + 1] == char}
    return len(data) in places


@given(TEXT, TEXT)
def test_a_pattern_means_what_its_stars_and_question_marks_say(pattern: str, data: str) -> None:
    """SE-22, D-85: punctuation of JSON, slashes and backslashes are themselves; the whole text has to match."""
    assert matches_data(pattern, data) is slow_match(pattern, data)


@given(st.integers(1, 60), st.integers(1, 60))
def test_many_stars_and_many_letters_end_soon(stars: int, letters: int) -> None:
    """The matcher is linear in the data, so a pattern can't stall whoever decides; the test's timeout is the judge."""
    assert not matches_data("*a?" * stars + "b", "a" * letters * 300)


@given(OBJECTS)
def test_a_call_is_spelled_one_way_however_its_fields_came(value: dict[str, object]) -> None:
    """SE-22: compact, keys sorted at every depth, text as it is."""
    spelled = canonical_data(value)
    assert json.loads(spelled) == json.loads(json.dumps(value))
    assert canonical_data(_reversed(value)) == spelled
    assert spelled == canonical_data(json.loads(spelled))


def _reversed(value: object) -> object:
    match value:
        case dict():
            return {key: _reversed(member) for key, member in reversed(value.items())}
        case list():
            return [_reversed(item) for item in value]
        case _:
            return value


def test_half_a_surrogate_pair_is_spelled_like_any_other_text_that_is_none() -> None:
    """A model can send `"\\ud800"`; the spelling stays defined, so that no rule is skipped by an error."""
    assert canonical_data({"body": "\ud800x", "\udc00": ["\udfff"]}) == '{"body":"�x","�":["�"]}'
    assert canonical_data({"body": "\ud83d\ude00"}) == '{"body":"😀"}'


@given(st.text(), st.text())
def test_a_value_cannot_pose_as_another_field(body: str, target: str) -> None:
    """SE-22: quotes in a value are escaped, so text in a field never reads as the field a pattern names."""
    data = canonical_data({"body": f'","target":"{target}","x":"{body}', "target": "prod"})
    assert not matches_data('*"target":"local"*', data)


@given(RULES, st.sampled_from(["ab", "a", "x", "a b"]))
def test_the_deciding_rule_does_not_depend_on_the_order_they_come_in(rules: list[RememberedRule], body: str) -> None:
    """SE-21, D-87: every order of the same rules decides alike."""
    call = CallData("spawn", {"body": body})
    decided = {(found.allow, found.rule) for order in list(permutations(rules))[:24] for found in [find(call, order)]}
    assert len(decided) == 1


@given(RULES, st.sampled_from(["ab", "a", "x"]))
def test_the_narrowest_scope_decides_then_patterns_then_denials(rules: list[RememberedRule], body: str) -> None:
    """SE-21, AP-20: told again as the statement has it, over all rules that match."""
    call = CallData("spawn", {"body": body})
    matching = [rule for rule in rules if rule.matches("spawn", call.whole)]
    found = find(call, rules)
    if not matching:
        assert found.rule is None and found.allow is None
        return
    scope = min(SCOPES.index(rule.scope) for rule in matching)
    narrowest = [rule for rule in matching if SCOPES.index(rule.scope) == scope]
    with_pattern = [rule for rule in narrowest if rule.pattern is not None] or narrowest
    assert found.allow is all(rule.allow for rule in with_pattern)
    assert found.rule in with_pattern


@given(RULES, st.sampled_from(["ab", "a", "x"]))
def test_deny_beats_allow_among_equals(rules: list[RememberedRule], body: str) -> None:
    """Appendix C 8: adding a denial of the same scope and kind never allows more."""
    call = CallData("spawn", {"body": body})
    before = find(call, rules)
    if before.rule is None or not before.allow:
        return
    denial = RememberedRule("spawn", False, before.rule.pattern and f"{before.rule.pattern}*", None, before.rule.scope)
    others = [rule for rule in rules if rule.address != denial.address]
    if denial.matches("spawn", call.whole) and denial.address != before.rule.address:
        assert find(call, [*others, denial]).allow is not True


def test_every_rule_of_the_tool_that_does_not_decide_says_why() -> None:
    rules = [
        RememberedRule("write", True, None, None, "global"),
        RememberedRule("write", True, None, None, "project"),
        RememberedRule("write", False, '*"x"*', None, "process"),
        RememberedRule("write", True, '*"a"*', None, "process"),
        RememberedRule("write", False, '{"path":"a"*', None, "process"),
        RememberedRule("edit", True),
    ]
    found = find(CallData("write", {"path": "a"}), rules, with_losers=True)

    assert found.rule == rules[4] and found.allow is False
    assert {loser.rule: loser.why for loser in found.losers} == {
        rules[3]: "a denial comes before an allow",
        rules[2]: "its pattern does not match",
        rules[1]: "`process` comes before `project`",
        rules[0]: "`process` comes before `global`",
    }


# --- the view a conversation has of all scopes ---


@pytest.fixture
def answers() -> SessionAnswers:
    return SessionAnswers(VolatileRuleStore(), RuleOwner("agent-1", "basis:/repo"))


def test_rules_are_listed_by_scope_then_tool_then_patterns_first(answers: SessionAnswers) -> None:
    """SE-25."""
    for scope in reversed(SCOPES):
        for pattern in (None, "b*", "a*"):
            answers.remember_rule(RememberedRule("write", True, pattern, None, scope))
        answers.remember_rule(RememberedRule("edit", True, None, None, scope))

    listed = [(rule.scope, rule.tool_name, rule.pattern) for rule in answers.remembered_rules()]
    each = [("edit", None), ("write", "a*"), ("write", "b*"), ("write", None)]
    assert listed == [(scope, *rest) for scope in SCOPES for rest in each]


def test_a_rule_is_replaced_at_its_address_and_revoked_by_it(answers: SessionAnswers) -> None:
    """SE-19: scope, tool and pattern are the identity; the last answer at it holds."""
    for scope in SCOPES:
        rule = RememberedRule("write", True, "a*", None, scope)
        answers.remember_rule(rule)
        answers.remember_rule(RememberedRule("write", False, "a*", "no", scope))

        assert [(r.allow, r.reason) for r in answers.remembered_rules()] == [(False, "no")]
        assert answers.revoke_rule(rule.address)
        assert not answers.revoke_rule(rule.address)
        assert answers.remembered_rules() == []


def test_clearing_a_scope_says_how_many_went_and_leaves_the_others(answers: SessionAnswers) -> None:
    """SE-25."""
    for scope in SCOPES:
        for tool in ("write", "edit"):
            answers.remember_rule(RememberedRule(tool, True, None, None, scope))

    assert [answers.clear_scope(scope) for scope in SCOPES] == [2, 2, 2, 2]
    assert [answers.clear_scope(scope) for scope in SCOPES] == [0, 0, 0, 0]


def test_an_allow_keeps_no_reason(answers: SessionAnswers) -> None:
    """SE-19, SE-15."""
    answers.remember_rule(RememberedRule("write", True, reason="fine"))
    answers.remember_rule(RememberedRule("edit", True, reason="fine", scope="global"))
    assert [rule.reason for rule in answers.remembered_rules()] == [None, None]


@pytest.mark.parametrize(
    "rule",
    [
        RememberedRule("", True),
        RememberedRule("write", True, "x" * 9000),
        RememberedRule("write", True, scope="forever"),  # type: ignore[arg-type]
    ],
)
def test_a_rule_that_says_nothing_useful_is_refused(answers: SessionAnswers, rule: RememberedRule) -> None:
    with pytest.raises(OperationDenied):
        answers.remember_rule(rule)
    assert answers.remembered_rules() == []


def test_what_is_answered_for_the_session_is_in_no_store() -> None:
    """SE-20, AP-14, Appendix C 9: another conversation of the same agent on the same store sees nothing of it."""
    store, owner = VolatileRuleStore(), RuleOwner("agent-1", "p")
    SessionAnswers(store, owner).remember(RememberedRule("write", True, scope="global"))
    assert SessionAnswers(store, owner).remembered_rules() == []
