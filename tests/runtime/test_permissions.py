"""Who decides a call, in which order, and what is remembered (runtime.md 6.4-6.5, workspace.md 5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basis_daemon.runtime.approvals import ApprovalAnswer, ApprovalRequest
from basis_daemon.runtime.permissions import Authorization, AuthorizationRequest, Permissions, Verdict
from basis_daemon.runtime.rules import RememberedRule, canonical_data, matches_data
from basis_daemon.runtime.session_rules import SessionAnswers
from basis_daemon.runtime.tools.base import CallPreparation
from basis_protocol.content import CallPreview
from basis_protocol.events import AnyEvent, PermissionRequested, PermissionResolved

pytestmark = pytest.mark.anyio


class Gate:
    """An authorizer with one answer."""

    def __init__(self, outcome: str, reason: str | None = None) -> None:
        self.authorization = Authorization(outcome, reason)  # type: ignore[arg-type]

    async def authorize(self, request: AuthorizationRequest) -> Authorization:
        return self.authorization


class Person:
    """An approver that answers from a list and keeps what it was asked."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.asked: list[ApprovalRequest] = []

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[return-value]


def call(tool: str = "write", id: str = "c1", **structured: object) -> AuthorizationRequest:
    return AuthorizationRequest(
        "agent-1",
        id,
        tool,
        CallPreparation(structured, CallPreview(input=structured), "local_state", "exclusive_local_mutation", tool),
    )


async def decide(
    gate: Gate, person: Person, request: AuthorizationRequest, answers: SessionAnswers | None = None, **kwargs: bool
) -> tuple[Verdict, list[AnyEvent]]:
    events: list[AnyEvent] = []
    permissions = Permissions("agent-1", gate, answers or SessionAnswers())
    return await permissions.decide(request, approver=person, emit=events.append, **kwargs), events


async def test_an_authorizers_denial_is_final_and_nobody_is_asked() -> None:
    """AP-13, SE-31: no rule and no person overrides it."""
    answers = SessionAnswers()
    answers.remember(RememberedRule("write", allow=True))
    person = Person()

    verdict, events = await decide(Gate("deny", "not here"), person, call(), answers)

    assert verdict == Verdict(allow=False, reason="not here")
    assert not person.asked and not events


async def test_the_question_is_announced_before_it_is_put_and_its_end_after() -> None:
    """TN-7, KD-16."""
    person = Person(ApprovalAnswer(allow=True))

    verdict, events = await decide(Gate("prompt"), person, call(path="a"))

    assert verdict.allow
    assert [type(event) for event in events] == [PermissionRequested, PermissionResolved]
    assert isinstance(events[1], PermissionResolved) and events[1].outcome == "allowed"
    assert person.asked[0].request_id == "perm-c1-1"


async def test_a_denials_reason_is_what_the_model_will_read() -> None:
    """SE-15."""
    verdict, _ = await decide(Gate("prompt"), Person(ApprovalAnswer(reason="use tabs")), call())
    assert verdict == Verdict(allow=False, reason="use tabs")


async def test_an_answer_for_this_session_answers_the_next_call_alone() -> None:
    """AP-14: one answer, no second question."""
    answers = SessionAnswers()
    person = Person(ApprovalAnswer(allow=True, scope="session"))

    await decide(Gate("prompt"), person, call(id="c1"), answers)
    verdict, events = await decide(Gate("prompt"), person, call(id="c2"), answers)

    assert verdict == Verdict(allow=True, rule_scope="process")
    assert len(person.asked) == 1 and not events
    assert {offer.scope: offer.covered for offer in person.asked[0].offers}["session"] == "every write"


async def test_an_answer_given_once_is_not_remembered() -> None:
    answers = SessionAnswers()
    await decide(Gate("prompt"), Person(ApprovalAnswer(allow=True)), call(), answers)
    assert answers.rules == ()


async def test_a_remembered_refusal_returns_its_reason_without_asking() -> None:
    """5.7 (c), SE-24."""
    answers = SessionAnswers()
    await decide(Gate("prompt"), Person(ApprovalAnswer(scope="session", reason="never")), call(), answers)

    verdict, _ = await decide(Gate("prompt"), Person(), call(id="c2"), answers)

    assert not verdict.allow and verdict.reason and verdict.reason.startswith("never")


@pytest.mark.parametrize("broken", [RuntimeError("gone"), None, "yes"])
async def test_an_approver_that_breaks_or_talks_nonsense_denies(broken: object) -> None:
    """AP-10."""
    verdict, events = await decide(Gate("prompt"), Person(broken), call())
    assert not verdict.allow and verdict.reason
    assert isinstance(events[-1], PermissionResolved) and events[-1].outcome == "denied"


async def test_an_authorizer_that_raises_denies() -> None:
    """TL-23."""

    class Broken:
        async def authorize(self, request: AuthorizationRequest) -> Authorization:
            raise RuntimeError("boom")

    verdict = await Permissions("a", Broken(), SessionAnswers()).decide(
        call(), approver=Person(), emit=lambda event: None
    )
    assert not verdict.allow


async def test_always_ask_puts_even_a_remembered_call_to_the_person() -> None:
    """The pocket model's limit: neither a rule nor an allowing authorizer answers for it."""
    answers = SessionAnswers()
    answers.remember(RememberedRule("write", allow=True))
    person = Person(ApprovalAnswer(reason="no"), ApprovalAnswer(reason="no"))

    for outcome in ("prompt", "allow"):
        verdict, _ = await decide(Gate(outcome), person, call(), answers, always_ask=True)
        assert not verdict.allow

    assert len(person.asked) == 2
    assert [asked.offers for asked in person.asked] == [(), ()]  # nothing is offered that would not hold


@pytest.mark.parametrize(
    ("pattern", "data", "expected"),
    [
        ("*", "anything/at all", True),
        ("a*c", "abbbc", True),
        ("a**c", "a/b/c", True),
        ("a?c", "abc", True),
        ("a?c", "ac", False),
        ("{a,b}[c]", "{a,b}[c]", True),
        ("{a,b}", "a", False),
        ("abc", "abcd", False),
        ("*b*b", "ab", False),
        ("a*b*c", "a-b-b-c", True),
        ("", "", True),
    ],
)
def test_a_data_pattern_knows_stars_and_question_marks_only(pattern: str, data: str, expected: bool) -> None:
    """SE-22, AP-19."""
    assert matches_data(pattern, data) is expected


@given(st.text(), st.text(), st.text())
def test_a_star_matches_whatever_stands_between(head: str, middle: str, tail: str) -> None:
    plain_head, plain_tail = head.replace("*", "").replace("?", ""), tail.replace("*", "").replace("?", "")
    assert matches_data(f"{plain_head}*{plain_tail}", plain_head + middle + plain_tail)


def test_a_hostile_pattern_does_not_stall() -> None:
    """Hundreds of stars against a long text that does not match end at once; the test's own timeout is the judge."""
    assert not matches_data("*a" * 200 + "b", "a" * 20_000)


def test_structured_input_has_one_spelling() -> None:
    """SE-22: compact, keys sorted."""
    assert canonical_data({"b": 1, "a": {"d": 2, "c": 3}}) == '{"a":{"c":3,"d":2},"b":1}'
