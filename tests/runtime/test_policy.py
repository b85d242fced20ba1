"""Where file tools may read and write, and whether commands may run (runtime.md 5.1, 5.2)."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from basis_daemon.errors import PolicyDenied
from basis_daemon.runtime.path_rules import canonical, is_within
from basis_daemon.runtime.policy import RuntimePolicy


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace with a file, a directory, and git's own things; a neighbour with the same beginning of its name."""
    root = tmp_path.resolve() / "repo"
    for directory in (root / "src", root / ".git" / "hooks", root.parent / "repo-other"):
        directory.mkdir(parents=True)
    (root / "src" / "a.py").write_text("a")
    (root / ".git" / "config").write_text("[core]")
    (root.parent / "repo-other" / "secret").write_text("s")
    return root


@pytest.fixture
def policy(root: Path) -> RuntimePolicy:
    return RuntimePolicy.workspace_bounded(root, allow_shell=False)


@pytest.mark.parametrize("path", ["src/a.py", "./src/../src/a.py", "new/deep/file", "src//a.py", "src/a.py/"])
def test_paths_inside_resolve_to_where_they_lead(policy: RuntimePolicy, root: Path, path: str) -> None:
    """PO-6."""
    assert policy.resolve_read(path, root) == Path(os.path.normpath(root / path))
    assert policy.resolve_write(path, root) == Path(os.path.normpath(root / path))


@pytest.mark.parametrize(
    "path",
    ["../repo-other/secret", "/etc/passwd", "src/../../x", "/", "..", "src/../..", "../repo/../repo-other/secret"],
)
def test_paths_outside_are_refused_by_name_and_root(policy: RuntimePolicy, root: Path, path: str) -> None:
    """PO-6, BT-10: compared by components, so a neighbour with the same prefix is outside too."""
    target = os.path.normpath(os.path.join(root, path))
    with pytest.raises(PolicyDenied, match="outside the read roots") as read:
        policy.resolve_read(path, root)
    with pytest.raises(PolicyDenied, match="outside the write roots") as write:
        policy.resolve_write(path, root)

    assert target in str(read.value) and str(root) in str(read.value)
    assert target in str(write.value) and str(root) in str(write.value)


def test_path_above_the_root_of_the_file_system_is_an_error(policy: RuntimePolicy, root: Path) -> None:
    """PO-6."""
    with pytest.raises(PolicyDenied, match="leads above the root"):
        policy.resolve_read("/.." + "/x", root)


@pytest.mark.parametrize("path", ["", "   ", "a\0b", "\ud800", "x/" * 3000])
def test_impossible_paths_are_refused(policy: RuntimePolicy, root: Path, path: str) -> None:
    with pytest.raises(PolicyDenied):
        policy.resolve_read(path, root)


def test_link_is_judged_by_where_it_leads(policy: RuntimePolicy, root: Path) -> None:
    """PO-6, invariant 3: existing links out, links in, and links in the middle of a path."""
    (root / "out").symlink_to(root.parent / "repo-other")
    (root / "in").symlink_to(root / "src")

    assert policy.resolve_read("in/a.py", root) == root / "src" / "a.py"
    assert policy.resolve_write("in/new", root) == root / "src" / "new"
    for path in ("out/secret", "out/new/file", "in/../out/secret"):
        with pytest.raises(PolicyDenied, match="outside the write roots"):
            policy.resolve_write(path, root)


@pytest.mark.parametrize("path", ["dangling", "dangling/below", "loop", "loop/below"])
def test_link_to_nowhere_is_an_error(policy: RuntimePolicy, root: Path, path: str) -> None:
    """PO-6: what it will lead to once somebody creates the target is anyone's guess."""
    (root / "dangling").symlink_to(root.parent / "nowhere")
    (root / "loop").symlink_to("loop")
    with pytest.raises(PolicyDenied):
        policy.resolve_write(path, root)


def test_file_used_as_a_directory_is_an_error(policy: RuntimePolicy, root: Path) -> None:
    with pytest.raises(PolicyDenied, match="not a directory"):
        policy.resolve_write("src/a.py/b", root)


def test_root_that_is_a_link_admits_what_is_behind_it(root: Path) -> None:
    """PO-6: candidates and roots are resolved alike."""
    (root.parent / "link").symlink_to(root)
    policy = RuntimePolicy.workspace_bounded(root.parent / "link")

    assert policy.resolve_write("src/a.py", root.parent / "link") == root / "src" / "a.py"
    with pytest.raises(PolicyDenied, match="denied write root"):
        policy.resolve_write(".git/config", root.parent / "link")


@pytest.mark.parametrize(
    "path", [".git/config", ".git/hooks", ".git/hooks/pre-commit", "x/../.git/config", ".GIT/Config", "link/hooks/a"]
)
def test_what_git_runs_or_obeys_is_never_written(policy: RuntimePolicy, root: Path, path: str) -> None:
    """GT-1, GT-2, PO-3, invariant 4: the refusal names the denied root."""
    (root / "link").symlink_to(root / ".git")
    with pytest.raises(PolicyDenied, match="denied write root"):
        policy.resolve_write(path, root)


@pytest.mark.parametrize("path", [".git/config", ".git/hooks/pre-commit", ".git/HEAD", ".gitignore"])
def test_git_directory_can_be_read_and_its_neighbours_written(policy: RuntimePolicy, root: Path, path: str) -> None:
    """GT-1 is about writing two places only."""
    assert policy.resolve_read(path, root) == root / path
    assert policy.resolve_write(".gitignore", root) == root / ".gitignore"


def test_denied_root_wins_over_every_allowed_one(root: Path) -> None:
    """Invariant 4."""
    policy = RuntimePolicy().with_denied_write_root(root / "src").with_allowed_write_root(root / "src")
    with pytest.raises(PolicyDenied, match="denied write root"):
        policy.resolve_write("src/a.py", root)


def test_read_only_reads_and_never_writes(root: Path) -> None:
    """PO-1, C-10: not even the base directory."""
    policy = RuntimePolicy.read_only(root)

    assert policy.resolve_read("src/a.py", root) == root / "src" / "a.py"
    with pytest.raises(PolicyDenied, match="read-only"):
        policy.resolve_write("src/a.py", root)
    with pytest.raises(PolicyDenied):
        policy.require_shell()


def test_base_directory_is_a_root_of_its_own(root: Path) -> None:
    """PO-1: empty root lists mean the base directory only; others add to it."""
    assert RuntimePolicy().resolve_write("a", root) == root / "a"
    other = root.parent / "repo-other"
    widened = RuntimePolicy().with_allowed_read_root(other)
    assert widened.resolve_read(other / "secret", root) == other / "secret"
    assert widened.resolve_read("src/a.py", root) == root / "src" / "a.py"
    with pytest.raises(PolicyDenied):
        widened.resolve_write(other / "secret", root)


def test_relative_roots_are_fixed_when_the_policy_is_made(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PO-8, D-76."""
    monkeypatch.chdir(root)
    policy = RuntimePolicy(read_roots=(Path("src"),))
    monkeypatch.chdir(root.parent)

    assert policy.read_roots == (root / "src",)


def test_switch_and_times_are_as_specified(root: Path) -> None:
    """5.1; the refusal names its cause (PO-2, GT-4)."""
    bounded = RuntimePolicy.workspace_bounded(root, allow_shell=False)
    with pytest.raises(PolicyDenied, match="shell posture of this workspace is `denied`"):
        bounded.require_shell()
    bounded.allow_shell_commands().require_shell()
    RuntimePolicy.permissive().require_shell()
    with pytest.raises(PolicyDenied, match="allow_shell_commands"):
        RuntimePolicy().require_shell()

    assert (bounded.default_command_timeout_s, bounded.max_command_timeout_s) == (120, 600)
    assert (RuntimePolicy().default_command_timeout_s, RuntimePolicy().max_command_timeout_s) == (30, 30)
    assert bounded.with_command_timeout(5).max_command_timeout_s == 5
    assert bounded.with_default_command_timeout(7).default_command_timeout_s == 7
    assert bounded.with_max_command_timeout(8).max_command_timeout_s == 8
    assert bounded.with_max_output_bytes_per_stream(1).max_output_bytes_per_stream == 1
    assert bounded.with_max_tool_result_bytes(2).max_tool_result_bytes == 2
    assert bounded.with_max_tool_result_lines(3).max_tool_result_lines == 3


names = st.sampled_from(["..", ".", "", "src", "a.py", "out", "in", "dangling", "new", ".git", "config", "hooks", "ä"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300, deadline=None)
@given(parts=st.lists(names, max_size=8), absolute=st.booleans())
def test_no_spelling_leads_out(policy: RuntimePolicy, root: Path, parts: list[str], absolute: bool) -> None:
    """Invariant 3: whatever is admitted is canonical, inside, and not a place git obeys."""
    if not (root / "out").is_symlink():
        (root / "out").symlink_to(root.parent)
        (root / "in").symlink_to(root / "src")
        (root / "dangling").symlink_to(root.parent / "nowhere")
    path = ("/" if absolute else "") + "/".join(parts)
    try:
        target = policy.resolve_write(path, root)
    except PolicyDenied:
        return
    assert target == Path(os.path.realpath(target))
    assert is_within(target, root)
    assert target not in (root / ".git" / "config", root / ".git" / "hooks")


@settings(deadline=None)
@given(text=st.text(max_size=40))
def test_any_text_resolves_or_is_refused(text: str) -> None:
    try:
        target = canonical(text, Path("/nonexistent-base"))
    except PolicyDenied:
        return
    assert target.is_absolute() and ".." not in target.parts


def test_background_commands_need_both_switches_and_the_refusal_names_the_one_that_is_off() -> None:
    """PO-2, 5.1."""
    with pytest.raises(PolicyDenied, match="allow_shell_commands"):
        RuntimePolicy().allow_background_commands().require_background()
    with pytest.raises(PolicyDenied, match="allow_background_commands"):
        RuntimePolicy().allow_shell_commands().require_background()
    RuntimePolicy().allow_shell_commands().allow_background_commands().require_background()
    RuntimePolicy.permissive().require_background()

    assert RuntimePolicy().max_background_tasks == 8
    assert RuntimePolicy().with_max_background_tasks(2).max_background_tasks == 2
    assert RuntimePolicy().spill_full_tool_output
    assert not RuntimePolicy().with_spilled_tool_output(False).spill_full_tool_output


def test_bounded_and_read_only_policies_keep_commands_off_until_a_host_says_otherwise(root: Path) -> None:
    """PO-5: with a host's executor in place it may turn the switch on."""
    for policy in (RuntimePolicy.workspace_bounded(root), RuntimePolicy.read_only(root)):
        assert not policy.allow_shell and not policy.allow_background
        policy.allow_shell_commands().require_shell()


def test_commands_may_be_told_to_run_in_working_roots_only(policy: RuntimePolicy, root: Path) -> None:
    """PO-10."""
    other = root.parent / "repo-other"
    assert policy.resolve_working_directory("src", root) == root / "src"
    with pytest.raises(PolicyDenied, match="outside the working roots"):
        policy.resolve_working_directory(other, root)
    assert policy.with_allowed_working_root(other).resolve_working_directory(other, root) == other


def test_commands_get_of_our_own_environment_only_what_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """PO-11, invariant 5: no key of the host reaches a command by default; the session's snapshot comes first."""
    for name, value in {"PATH": "/ours", "EDITOR": "vi", "SOME_API_KEY": "k"}.items():
        monkeypatch.setenv(name, value)

    assert RuntimePolicy().command_environment({}) == {"PATH": "/ours"}
    assert RuntimePolicy().command_environment({"PATH": "/theirs", "X": "1"}) == {"PATH": "/theirs", "X": "1"}
    assert RuntimePolicy().with_allowed_env_var("EDITOR").command_environment({}) == {"PATH": "/ours", "EDITOR": "vi"}
