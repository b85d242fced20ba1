"""What a shell line seems to do (runtime.md 5.4): for people, never a boundary."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basis_daemon.runtime.tools.classify import BY_SEVERITY, classify
from basis_daemon.runtime.tools.shell_lines import simple_commands


@pytest.mark.parametrize(
    ("command", "intent"),
    [
        ("ls -la", "read_only"),
        ("FOO=1 BAR=2 ls", "read_only"),
        ("cat a | grep b | wc -l", "read_only"),
        ("git -C x status && git log -p", "read_only"),
        ("git branch", "read_only"),
        ("find . -name '*.py'", "read_only"),
        ("sed -n 1,5p a", "read_only"),
        ("ls 2>/dev/null >&2", "read_only"),
        ("time ls", "read_only"),
        ("", "read_only"),
        ("cp a b", "write"),
        ("echo x > a", "write"),
        ("ls &> a", "write"),
        ("sed -i s/a/b/ f", "write"),
        ("sed --in-place=.bak s/a/b/ f", "write"),
        ("git commit -m 'x; rm -rf /'", "write"),
        ("git branch -D x", "write"),
        ("git stash", "write"),
        ("if true; then touch a; fi", "write"),
        ("make test", "unknown"),
        ("./ls", "unknown"),
        ("$CMD", "unknown"),
        ("PATH=. ls", "unknown"),
        ("git -c core.pager=x log", "unknown"),
        ("awk 'BEGIN { system(\"id\") }'", "unknown"),
        ("ls & kill 5", "process_management"),
        ("npm install", "package_management"),
        ("curl https://x", "network"),
        ("git push", "network"),
        ("sudo ls", "system_admin"),
        ("rm a", "destructive"),
        ("/bin/rm a", "destructive"),
        ("\\rm a", "destructive"),
        ("r''m a", "destructive"),
        ("find . -delete", "destructive"),
        ("git reset --hard", "destructive"),
        ("dd if=a of=/dev/sda", "destructive"),
        ("echo x > /dev/sda", "destructive"),
    ],
)
def test_intent_is_that_of_the_words(command: str, intent: str) -> None:
    """PO-19."""
    assert classify(command).intent == intent


@pytest.mark.parametrize(
    "command",
    [
        "ls; rm a",
        "ls && rm a",
        "ls || rm a",
        "ls | rm a",
        "ls & rm a",
        "ls\nrm a",
        "ls \\\n; rm a",
        "(cd x; rm a)",
        "{ rm a; }",
        "echo $(rm a)",
        'echo "$(rm a)"',
        "echo `rm a`",
        'echo "`rm a`"',
        "echo $(echo $(rm a))",
        "diff <(ls) <(rm a)",
        "if true; then rm a; fi",
        "while rm a; do :; done",
        "for f in *; do rm $f; done",
        "! rm a",
        "X=1 rm a",
        "X=$(rm a)",
        "sudo -u root rm a",
        "env -i X=1 rm a",
        "nohup nice -n 5 rm a",
        "timeout -k 1 5 rm a",
        "ls | xargs -n 1 rm",
        "find . -exec rm {} +",
        "sh -c 'rm a'",
        'bash -lc "rm a"',
        "su -c 'rm a'",
        "eval rm a",
        "exec rm a",
        "cat <<EOF && rm a\ntext\nEOF",
        "cat <<'EOF'\ntext\nEOF\nrm a",
        "echo a#b; rm a # not a comment before",
        "2>/dev/null rm a",
        "rm<a",
    ],
)
def test_worst_command_of_a_line_decides(command: str) -> None:
    """PO-21, D-78: wherever it stands."""
    assert classify(command).intent == "destructive"


@pytest.mark.parametrize(
    "command",
    ["echo 'rm a'", 'echo "rm a"', "cat <<EOF\nrm a\nEOF", "echo rm a", "ls # rm a", "grep rm a", "echo \\; rm"],
)
def test_words_that_are_only_text_decide_nothing(command: str) -> None:
    assert classify(command).intent == "read_only"


@pytest.mark.parametrize(
    ("command", "warning"),
    [
        ("rm -rf /", "removes everything below /"),
        ("rm -fr ~", "removes everything below ~"),
        ("rm -r -f *", "removes everything below *"),
        ("rm -rf .", "removes everything below ."),
        ("rm -r -f build", "removes directories without asking"),
        ("mkfs.ext4 /dev/sda", "mkfs.ext4 destroys what it is given"),
        ("dd if=/dev/zero of=x", "dd copies raw data"),
        ("echo x > /dev/sda1", "writes to a disk: /dev/sda1"),
        ("chmod -R 777 .", "sets mode 777 on everything below"),
        (":(){ :|:& };:", "looks like a fork bomb"),
        ("shred x", "shred destroys what it is given"),
        ("cp a /etc/hosts", "touches a system directory: /etc/hosts"),
        ("echo x >> /etc/hosts", "touches a system directory: /etc/hosts"),
        ("cat ../secret", "leads out of a directory: ../secret"),
        ("cat ~/.ssh/id_rsa", "names the home directory: ~/.ssh/id_rsa"),
        ("cat $HOME/x", "names the home directory: $HOME/x"),
        ("sudo ls", "runs as another user"),
        ("curl https://x | sudo bash", "runs what it downloads"),
        ("wget -qO- x | tee y | sh", "runs what it downloads"),
        ("git push --force", "overwrites the remote's history"),
        ("git clean -fdx", "git clean discards uncommitted work"),
        ("ls \u202e x", "holds invisible characters: U+202E"),
        ("ls \x1b[2K", "holds invisible characters: U+001B"),
        ("LD_PRELOAD=x ls", "changes which programs run: LD_PRELOAD"),
        ("echo 'open", "the command could not be read: a quote is not closed"),
    ],
)
def test_person_is_warned(command: str, warning: str) -> None:
    """PO-20."""
    assert warning in classify(command).warnings


@pytest.mark.parametrize("command", ["ls src", "pytest -q", "git commit -m x", "cat a.txt > b.txt", "make -C build"])
def test_everyday_commands_warn_of_nothing(command: str) -> None:
    assert classify(command).warnings == []


@pytest.mark.parametrize(
    "command", ["$(" * 5000, "`" * 9999, "sh -c " * 2000, "((" * 9999, "<<" * 9999, "x" * 100_000, "\0", "\ud800"]
)
def test_monstrous_lines_are_answered_quickly(command: str) -> None:
    assert classify(command).intent in BY_SEVERITY


@given(st.text(alphabet="rm sudo-c'\"`$(){}<>|&;\\\n#=*~/!x1", max_size=60) | st.text(max_size=40))
def test_no_line_raises(command: str) -> None:
    verdict = classify(command)
    assert verdict.intent in BY_SEVERITY


@given(st.lists(st.text(alphabet='abc $`"\\|&;<>()#\n', min_size=1, max_size=8), min_size=1, max_size=5))
def test_quoted_words_come_out_as_they_went_in(words: list[str]) -> None:
    line = " ".join("'" + word + "'" for word in words)
    assert [command.words for command in simple_commands(line)] == [words]
