"""Gates, modes and approvers: every doubt denies, and says why."""

from typing import Any

import anyio
import pytest

from basis_daemon.runtime.permissions import ApprovalAnswer, ApprovalRequest, AuthorizationRequest
from basis_daemon.runtime.tools.base import CallPreparation, SideEffectLevel
from basis_daemon.workspace.approval import AllowAll, ApprovalGate, DefaultDeny, DenyAll, PolicyGate
from basis_protocol.content import CallPreview

pytestmark = pytest.mark.anyio


def call(side_effect: SideEffectLevel) -> AuthorizationRequest:
    preparation = CallPreparation(
        structured_input={},
        preview=CallPreview(input={}),
        side_effect=side_effect,
        execution="exclusive_local_mutation",
        title="deploy",
    )
    return AuthorizationRequest("agent-1", "call-1", "deploy", preparation)


def question() -> ApprovalRequest:
    return ApprovalRequest(
        request_id="perm-call-1-1",
        session_id="agent-1",
        tool_call_id="call-1",
        tool_name="deploy",
        title="deploy",
        description="",
        input={},
        preview=CallPreview(input={}),
        side_effect_level="external",
    )


class Says:
    """An approver that answers whatever it was given, or raises it."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


async def test_only_calls_with_consequences_are_asked_about() -> None:
    """AP-4, AP-11."""
    gate = ApprovalGate()

    assert (await gate.authorize(call("none"))).outcome == "allow"
    for level in ("local_state", "process", "external"):
        assert (await gate.authorize(call(level))).outcome == "prompt"


async def test_the_mode_is_read_at_every_call() -> None:
    """AP-23: `never` refuses for good, the others ask on; an unknown word is as strict as `never`."""
    modes = ["prompt", "always", "never", "bogus"]
    gate = PolicyGate(lambda: modes[0])

    for expected in ("prompt", "prompt", "deny", "deny"):
        assert (await gate.authorize(call("process"))).outcome == expected
        modes.append(modes.pop(0))
    modes[0] = "never"
    assert (await gate.authorize(call("none"))).outcome == "allow"


async def test_never_says_that_the_mode_is_the_reason() -> None:
    """AP-23."""
    assert "never" in ((await PolicyGate(lambda: "never").authorize(call("external"))).reason or "")


async def test_the_two_plain_approvers() -> None:
    """AP-9."""
    assert (await AllowAll().approve(question())).allow
    refusal = await DenyAll().approve(question())
    assert not refusal.allow and "deploy" in (refusal.reason or "")


@pytest.mark.parametrize("answer", [RuntimeError("broken"), TimeoutError(), None, True, "yes", {"allow": True}])
async def test_an_approver_that_fails_or_talks_nonsense_denies_with_a_reason(answer: Any) -> None:
    """AP-10."""
    with anyio.fail_after(5):
        verdict = await DefaultDeny(Says(answer)).approve(question())

    assert verdict.allow is False and verdict.reason


async def test_a_truthy_value_is_not_an_allowance() -> None:
    """AP-10: only `True` allows."""
    assert not (await DefaultDeny(Says(ApprovalAnswer(allow="no"))).approve(question())).allow  # type: ignore[arg-type]


@pytest.mark.parametrize("level", [None, "something new"])
async def test_a_level_nobody_knows_is_asked_about_like_the_worst(level: Any) -> None:
    """AP-1, AP-6, 5.7 (b)."""
    assert (await ApprovalGate().authorize(call(level))).outcome == "prompt"
    assert (await PolicyGate(lambda: "never").authorize(call(level))).outcome == "deny"


def test_an_answer_that_says_nothing_denies() -> None:
    """AP-7."""
    assert ApprovalAnswer() == ApprovalAnswer(allow=False, scope="once", reason=None, pattern=None)


def test_an_approver_is_shown_a_call_and_cannot_rewrite_it() -> None:
    """AP-8: rewriting is the hooks' business."""
    with pytest.raises(AttributeError):
        question().input = {"other": True}  # type: ignore[misc]


async def test_a_good_answer_passes_unchanged() -> None:
    answer = ApprovalAnswer(allow=True, scope="session", pattern="*")

    assert await DefaultDeny(Says(answer)).approve(question()) is answer


async def test_nobody_answering_in_time_denies() -> None:
    """AP-12."""

    class Silent:
        async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
            await anyio.sleep_forever()
            raise AssertionError

    with anyio.fail_after(5):
        verdict = await DefaultDeny(Silent(), timeout_s=0.01).approve(question())

    assert not verdict.allow and "0.01 s" in (verdict.reason or "")


async def test_a_withdrawn_question_is_cancelled_not_denied() -> None:
    """Cancelling is not a doubt about the answer: it goes on up."""
    started = anyio.Event()

    class Silent:
        async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
            started.set()
            await anyio.sleep_forever()
            raise AssertionError

    async def ask() -> None:
        await DefaultDeny(Silent()).approve(question())
        raise AssertionError("an answer was made up")

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await started.wait()
            tasks.cancel_scope.cancel()
