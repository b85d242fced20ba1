"""What a policy makes of a command's looks (runtime.md 5.4)."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from basis_daemon.errors import PolicyDenied
from basis_daemon.runtime.policy import RuntimePolicy
from basis_daemon.runtime.tools.shell_validation import judge_command, require_sound

ROOT = Path("/repository")
READ_ONLY = RuntimePolicy.read_only(ROOT).allow_shell_commands()
BOUNDED = RuntimePolicy.workspace_bounded(ROOT, allow_shell=True)


@pytest.mark.parametrize(
    "command",
    [
        "rm a",
        "cp a b",
        "echo x > a",
        "echo x >> a",
        "ls >& a",
        "sed -i s/a/b/ a",
        "git commit -m x",
        "git checkout .",
        "sudo rm a",
        "sudo -u x sed -i s/a/b/ a",
        "ls && rm a",
        "cat a | tee b",
        "echo $(rm a)",
        "bash -c 'rm a'",
        "find . -exec rm {} +",
        "printf x | xargs rm",
        "env A=1 rm a",
        "pip install x",
        "kill 1",
    ],
)
def test_policy_that_writes_nothing_blocks_what_changes_anything(command: str) -> None:
    """PO-18, PO-20, PO-21, D-78: also behind a pipe, a list, a substitution or a wrapper."""
    verdict = judge_command(command, READ_ONLY)

    assert verdict.outcome == "block"
    assert "read-only" in (verdict.reason or "")


@pytest.mark.parametrize(
    "command", ["ls -la", "git log --oneline", "grep -r x . 2>/dev/null", "cat a | sort | uniq -c"]
)
def test_looking_is_allowed_everywhere(command: str) -> None:
    """PO-18."""
    assert judge_command(command, READ_ONLY).outcome == "allow"
    assert judge_command(command, BOUNDED).outcome == "allow"


@pytest.mark.parametrize(
    "command", ["rm -rf /", "chmod -R 777 .", "cat ../../secret", "cp a /etc/b", "ls ~/x", "shred a"]
)
def test_policy_that_may_write_warns_of_harm_and_blocks_nothing(command: str) -> None:
    """PO-18, PO-20."""
    verdict = judge_command(command, BOUNDED)

    assert verdict.outcome == "warn" and verdict.reason


@pytest.mark.parametrize("command", ["curl http://x", "./unknown-program"])
def test_what_might_change_something_is_a_warning_where_nothing_may(command: str) -> None:
    """PO-18."""
    assert judge_command(command, READ_ONLY).outcome == "warn"


@pytest.mark.parametrize(("mode", "refused"), [("off", False), ("warn", False), ("enforce", True)])
def test_only_enforcing_refuses(mode: str, refused: bool) -> None:
    """PO-17."""
    policy = READ_ONLY.with_shell_validation(mode)  # type: ignore[arg-type]
    verdict = judge_command("rm a", policy)

    if refused:
        with pytest.raises(PolicyDenied, match=r"read-only.*shell validation"):
            require_sound(verdict, policy)
    else:
        require_sound(verdict, policy)


def test_warning_is_never_a_refusal() -> None:
    """PO-17: enforcing refuses what is blocked; a warning only warns."""
    policy = BOUNDED.with_shell_validation("enforce")
    require_sound(judge_command("rm -rf /", policy), policy)


@settings(max_examples=300, deadline=None)
@given(
    before=st.sampled_from(["ls", "echo 'a;b'", "true", "cat <<E\nrm\nE\n", "(ls)"]),
    joint=st.sampled_from([";", "&&", "||", "|", "&", "\n", " ;\n", "|&"]),
    hidden=st.sampled_from(["rm a", "'rm' a", "r\\m a", '"rm" a', "sudo rm a", "$(rm a)", "`rm a`", "X=1 rm a"]),
    is_first=st.booleans(),
)
def test_no_neighbour_hides_a_command(before: str, joint: str, hidden: str, is_first: bool) -> None:
    """PO-21: whatever stands before or behind it, and however they are joined, the worst command decides."""
    line = f"{hidden}{joint}{before}" if is_first else f"{before}{joint}{hidden}"

    assert judge_command(line, READ_ONLY).outcome == "block", line
