"""Who decides a call, in which order, and what is remembered (runtime.md 6.4-6.5, workspace.md 5)."""

from collections.abc import Awaitable, Callable

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from basis_daemon.errors import BasisError, CorruptStore, StoreError
from basis_daemon.runtime.approvals import ApprovalAnswer, ApprovalRequest, Approver, RememberScope
from basis_daemon.runtime.permissions import Authorization, AuthorizationRequest, Authorizer, Permissions, Verdict
from basis_daemon.runtime.rules import (
    SCOPES,
    OperationDenied,
    PermissionRuleAddress,
    RememberedRule,
    RuleOwner,
    RuleScope,
    canonical_data,
    matches_data,
)
from basis_daemon.runtime.session_rules import SessionAnswers
from basis_daemon.runtime.store.rules import VolatileRuleStore
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
    gate: Authorizer,
    person: Approver,
    request: AuthorizationRequest,
    answers: SessionAnswers | None = None,
    **kwargs: bool,
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


# --- the order of questions ---


class Unable:
    """A store of rules whose file can't be read or written."""

    file = "/data/store/rules.json"

    def load(self, owner: RuleOwner) -> tuple[RememberedRule, ...]:
        raise CorruptStore("the remembered rules in /data/store/rules.json can't be read: line 3")

    def upsert(self, owner: RuleOwner, rule: RememberedRule) -> None:
        raise StoreError("could not write /data/store/rules.json: No space left on device")

    def revoke(self, owner: RuleOwner, address: PermissionRuleAddress) -> bool:
        raise StoreError("could not write /data/store/rules.json: No space left on device")

    def clear(self, owner: RuleOwner, scope: RuleScope) -> int:
        raise StoreError("could not write /data/store/rules.json: No space left on device")

    def save(self, owner: RuleOwner, rules: tuple[RememberedRule, ...]) -> None:
        raise StoreError("could not write /data/store/rules.json: No space left on device")


class Full(Unable):
    """One that can be read and not written."""

    def load(self, owner: RuleOwner) -> tuple[RememberedRule, ...]:
        return ()


PROJECT = RuleOwner("agent-1", "basis:/repo")


@pytest.mark.parametrize("outcome", ["allow", "prompt", "deny"])
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("allow", [True, False])
async def test_a_rule_only_answers_what_would_be_asked(outcome: str, scope: RuleScope, allow: bool) -> None:
    """SE-31, AP-13, D-91, Appendix C 8: an authorizer's own word is final, whatever was remembered and how widely."""
    answers = SessionAnswers(VolatileRuleStore(), PROJECT)
    answers.remember_rule(RememberedRule("write", allow, scope=scope))

    verdict, events = await decide(Gate(outcome), Person(), call(), answers)

    assert verdict.allow is (allow if outcome == "prompt" else outcome == "allow")
    assert verdict.rule_scope == (scope if outcome == "prompt" else None)
    assert not events


@pytest.mark.parametrize("scope", SCOPES)
async def test_a_remembered_refusal_says_for_what_and_that_asking_again_is_no_use(scope: RuleScope) -> None:
    """SE-24, D-86, 5.7 (c)."""
    answers = SessionAnswers(VolatileRuleStore(), PROJECT)
    answers.remember_rule(RememberedRule("write", False, None, "generated files", scope))
    words = {"process": "this session", "session": "this conversation", "project": "this project"}

    verdict, _ = await decide(Gate("prompt"), Person(), call(), answers)

    assert verdict.reason is not None
    assert verdict.reason.startswith(f"generated files (remembered for {words.get(scope, 'all projects')}; ")
    assert "asking again will not change it" in verdict.reason

    answers.remember_rule(RememberedRule("write", False, None, None, scope))
    verdict, _ = await decide(Gate("prompt"), Person(), call(), answers)
    assert verdict.reason is not None and verdict.reason.startswith("refused (remembered")


@pytest.mark.parametrize(("scope", "kept"), [("session", "process"), ("project", "project"), ("global", "global")])
async def test_an_answer_is_kept_where_it_was_given_for(scope: RememberScope, kept: RuleScope) -> None:
    """SE-14, SE-23: the bare tool unless a pattern comes with the answer. SE-16: told with its scope."""
    answers = SessionAnswers(VolatileRuleStore(), PROJECT)

    verdict, events = await decide(Gate("prompt"), Person(ApprovalAnswer(True, scope)), call(path="a"), answers)

    assert verdict.allow
    assert answers.remembered_rules() == [RememberedRule("write", True, scope=kept)]
    assert isinstance(events[-1], PermissionResolved) and events[-1].rule_scope == kept


async def test_a_pattern_in_the_answer_narrows_what_is_kept() -> None:
    """SE-23."""
    answers = SessionAnswers(VolatileRuleStore(), PROJECT)
    await decide(
        Gate("prompt"), Person(ApprovalAnswer(True, "project", None, '{"path":"src/*')), call(path="src/a"), answers
    )

    assert [rule.pattern for rule in answers.remembered_rules()] == ['{"path":"src/*']
    assert answers.find("write", {"path": "src/b"}).allow is True
    assert answers.find("write", {"path": "etc"}).allow is None


async def test_two_sessions_of_a_project_share_its_answers_and_not_those_for_the_session() -> None:
    """SE-20, SE-25, AP-15: the one asks, the other need not; a new live session begins with neither session's own."""
    store = VolatileRuleStore()
    one, other = SessionAnswers(store, PROJECT), SessionAnswers(store, RuleOwner("agent-2", "basis:/repo"))
    await decide(Gate("prompt"), Person(ApprovalAnswer(True, "project")), call("write"), one)
    await decide(Gate("prompt"), Person(ApprovalAnswer(True, "session")), call("edit"), one)

    assert (await decide(Gate("prompt"), Person(), call("write"), other))[0].rule_scope == "project"
    person = Person(ApprovalAnswer())
    await decide(Gate("prompt"), person, call("edit"), other)
    await decide(Gate("prompt"), Person(ApprovalAnswer()), call("edit"), SessionAnswers(store, PROJECT))
    assert len(person.asked) == 1


# --- keeping an answer ---


class Keeping:
    """A person whose answer is kept before it counts, and who tries again as they are told."""

    def __init__(self, *answers: ApprovalAnswer) -> None:
        self.answers = list(answers)
        self.failures: list[BasisError] = []

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        for answer in self.answers:
            try:
                await request.keep(answer)
            except BasisError as error:
                self.failures.append(error)
                continue
            return answer
        raise AssertionError("no answer could be kept")


async def test_a_failed_persist_leaves_the_question_open_for_another_answer() -> None:
    """SE-16, D-92: nothing is told before it is kept; then the same question takes an answer that needs no store."""
    person = Keeping(ApprovalAnswer(True, "global"), ApprovalAnswer(True, "session"))
    answers = SessionAnswers(Full(), PROJECT)

    verdict, events = await decide(Gate("prompt"), person, call(), answers)

    assert [type(failure) for failure in person.failures] == [StoreError]
    assert verdict.allow and [rule.scope for rule in answers.rules] == ["process"]
    assert [type(event) for event in events] == [PermissionRequested, PermissionResolved]


async def test_a_scope_that_is_not_offered_leaves_the_question_open() -> None:
    """SE-16, SE-20: validated first; a conversation without a project keeps nothing for one."""
    person = Keeping(ApprovalAnswer(True, "project"), ApprovalAnswer(False, "once", "then not"))

    verdict, _ = await decide(Gate("prompt"), person, call(), SessionAnswers(VolatileRuleStore(), RuleOwner("agent-1")))

    assert [type(failure) for failure in person.failures] == [OperationDenied]
    assert verdict == Verdict(allow=False, reason="then not")


async def test_an_answer_that_cannot_be_kept_at_all_refuses_the_call() -> None:
    """SE-16, 5.7 (a): an approver that doesn't ask first is not taken at half its word."""
    verdict, events = await decide(
        Gate("prompt"), Person(ApprovalAnswer(True, "global")), call(), SessionAnswers(Full(), PROJECT)
    )
    assert not verdict.allow and verdict.reason and "rules.json" in verdict.reason
    assert isinstance(events[-1], PermissionResolved) and events[-1].outcome == "denied"
    assert events[-1].rule_scope is None


async def test_what_is_kept_once_is_not_written_again() -> None:
    """SE-16: kept by whoever told the person, then settled."""

    class Counting(VolatileRuleStore):
        writes = 0

        def upsert(self, owner: RuleOwner, rule: RememberedRule) -> None:
            self.writes += 1
            super().upsert(owner, rule)

    store = Counting()
    await decide(Gate("prompt"), Keeping(ApprovalAnswer(True, "global")), call(), SessionAnswers(store, PROJECT))
    assert store.writes == 1


async def test_an_answer_that_comes_after_the_end_of_its_question_is_not_kept() -> None:
    """SE-16, SE-30: the turn was cancelled while the person made up their mind."""
    asked: list[ApprovalRequest] = []
    entered = anyio.Event()

    class Slow:
        async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
            asked.append(request)
            entered.set()
            await anyio.sleep_forever()
            raise AssertionError

    answers = SessionAnswers(VolatileRuleStore(), PROJECT)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: decide(Gate("prompt"), Slow(), call(), answers))
            await entered.wait()
            tasks.cancel_scope.cancel()
    await asked[0].keep(ApprovalAnswer(True, "global"))

    assert answers.remembered_rules() == []


# --- rules that can't be read ---


@pytest.mark.parametrize("always_ask", [False, True])
async def test_rules_that_cannot_be_read_refuse_naming_the_file(always_ask: bool) -> None:
    """SE-26, Appendix C 8: never an allow, and nobody is asked in the dark."""
    person = Person()
    verdict, events = await decide(
        Gate("prompt"), person, call(), SessionAnswers(Unable(), PROJECT), always_ask=always_ask
    )
    assert not verdict.allow and verdict.reason and "/data/store/rules.json" in verdict.reason
    assert not person.asked and not events


@pytest.mark.parametrize("allow", [True, False])
async def test_answers_for_the_session_work_without_the_file(allow: bool) -> None:
    """SE-26, D-90."""
    answers = SessionAnswers(Unable(), PROJECT)
    answers.remember(RememberedRule("write", allow))
    verdict, _ = await decide(Gate("prompt"), Person(), call(), answers)
    assert verdict.allow is allow and verdict.rule_scope == "process"


async def test_calls_that_need_no_answer_need_no_file() -> None:
    """SE-26, AP-4."""
    verdict, _ = await decide(Gate("allow"), Person(), call(), SessionAnswers(Unable(), PROJECT))
    assert verdict.allow


async def test_a_store_that_breaks_unexpectedly_refuses() -> None:
    """5.7 (a)."""

    class Broken(Full):
        def load(self, owner: RuleOwner) -> tuple[RememberedRule, ...]:
            raise ZeroDivisionError

        def upsert(self, owner: RuleOwner, rule: RememberedRule) -> None:
            raise ZeroDivisionError

    verdict, _ = await decide(Gate("prompt"), Person(), call(), SessionAnswers(Broken(), PROJECT))
    assert not verdict.allow and verdict.reason and "looked up" in verdict.reason


# --- authorizers ---


class Judging:
    """An authorizer that does what it is told when asked."""

    def __init__(self, act: Callable[[], Awaitable[object]], timeout_s: float | None = None) -> None:
        self.act = act
        self.timeout_s = timeout_s

    async def authorize(self, request: AuthorizationRequest) -> Authorization:
        return await self.act()  # type: ignore[return-value]


async def _raise(error: BaseException) -> object:
    raise error


@pytest.mark.parametrize(
    "act",
    [
        lambda: _raise(RuntimeError("boom")),
        lambda: _raise(TimeoutError()),
        lambda: _return(None),
        lambda: _return("allow"),
        lambda: _return(Authorization("perhaps")),  # type: ignore[arg-type]
        lambda: _return(True),
    ],
)
async def test_an_authorizer_that_fails_or_talks_nonsense_blocks(act: Callable[[], Awaitable[object]]) -> None:
    """TL-23."""
    verdict, events = await decide(Judging(act), Person(), call())
    assert verdict == Verdict(allow=False, reason="the call could not be checked, so it was refused")
    assert not events


async def _return(value: object) -> object:
    return value


async def test_an_authorizer_that_takes_too_long_blocks_and_the_reason_says_so() -> None:
    """TL-22, TL-23."""
    verdict, _ = await decide(Judging(anyio.sleep_forever, 0.01), Person(), call())
    assert not verdict.allow and verdict.reason == "it was not judged within 0.01 s, so it was refused"


async def test_the_time_a_person_takes_is_not_the_authorizers() -> None:
    """TL-26, D-93: the authorizer's limit is long over when the person answers."""
    over = anyio.Event()

    class Thinking:
        async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
            with anyio.move_on_after(0.05):
                await over.wait()
            return ApprovalAnswer(allow=True)

    verdict, _ = await decide(Judging(lambda: _return(Authorization("prompt")), 0.01), Thinking(), call())
    assert verdict.allow


async def test_repeated_ids_of_calls_make_requests_of_their_own() -> None:
    """SE-13, D-94."""
    person = Person(ApprovalAnswer(), ApprovalAnswer(), ApprovalAnswer())
    permissions = Permissions("agent-1", Gate("prompt", "it deploys"), SessionAnswers())
    for id in ("c1", "c1", "c2"):
        await permissions.decide(call(id=id), approver=person, emit=lambda event: None)

    assert [asked.request_id for asked in person.asked] == ["perm-c1-1", "perm-c1-2", "perm-c2-1"]
    assert {asked.description for asked in person.asked} == {"it deploys"}


async def test_a_reason_with_an_allow_is_ignored() -> None:
    """SE-15."""
    answers = SessionAnswers()
    verdict, _ = await decide(Gate("prompt"), Person(ApprovalAnswer(True, "session", "well")), call(), answers)
    assert verdict == Verdict(allow=True)
    assert [rule.reason for rule in answers.rules] == [None]
