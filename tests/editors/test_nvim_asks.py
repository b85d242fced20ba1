"""Questions in Neovim: shown without taking the cursor, answered here or closed when somebody else was quicker."""

from pathlib import Path

from support.daemon import DaemonProcess
from support.model_server import Gate, ModelServer, calls, says, slow, tool
from support.nvim import Nvim

WRITE = tool("write", {"path": "new.txt", "content": "one\ntwo\n"})
RUN = tool("spawn", {"input": "!touch ran"})


def look(nvim: Nvim) -> None:
    """Let the moment pass in which an answer counts as given before the question was seen."""
    nvim.lua("vim.wait(350)")


def test_an_edit_is_shown_as_a_diff_and_done_when_approved(nvim: Nvim, model: ModelServer, repo: Path) -> None:
    model.script(calls(WRITE), says("written"))
    nvim.ask("write it")

    nvim.wait_screen("basis asks", "+one", "+two", "waiting for you (1)")
    assert not (repo / "new.txt").exists()
    look(nvim)
    nvim.command("Basis approve")

    nvim.wait_screen("written", "allowed by you", "basis: idle")
    assert (repo / "new.txt").read_text() == "one\ntwo\n"
    assert "basis asks" not in nvim.screen()


def test_a_question_takes_neither_cursor_nor_keys(nvim: Nvim, model: ModelServer) -> None:
    """What is being typed goes where it went before, even if it is the answer's key."""
    gate = Gate()
    model.script(slow(calls(RUN), gate=gate, before=0), says("done"))
    nvim.command("edit a.txt")
    nvim.ask("run it")
    nvim.wait_state("working")
    nvim.command("stopinsert | 1wincmd w")
    nvim.type("Ginyyy")
    gate.open()

    nvim.wait_screen("basis asks", "$ touch ran")
    nvim.type("yyy<Esc>")

    nvim.wait(lambda: nvim.api.current.line == "nyyyyyygamma")
    assert nvim.api.current.buffer.name.endswith("a.txt")
    nvim.wait_state("waiting for you (1)")


def test_a_rejected_command_never_runs_and_the_model_reads_why(nvim: Nvim, model: ModelServer, repo: Path) -> None:
    model.script(calls(RUN), says("then not"))
    nvim.ask("run it")
    nvim.wait_screen("basis asks", "$ touch ran")
    look(nvim)

    nvim.command("Basis reject not on a Monday")

    nvim.wait_screen("then not", "denied by you: not on a Monday")
    assert "not on a Monday" in str(model.requests[1].body)
    assert not (repo / "ran").exists()


def test_an_answer_for_the_project_says_what_it_covers_and_answers_the_next_session(
    nvim: Nvim, model: ModelServer, repo: Path, daemon: DaemonProcess
) -> None:
    """AP-21: the window spells out how far the answer reaches; the next question is not asked."""
    model.script(calls(RUN), says("done"))
    nvim.ask("run it")
    nvim.wait_screen("basis asks", "p  Allow exactly `touch ran` in this project", "g  Allow exactly")
    look(nvim)

    nvim.command("Basis approve project")

    nvim.wait_screen("allowed for this project by you", "basis: idle")
    rules = daemon.connect().call("basis/rule/list", {"workspace": str(repo)})["rules"]
    assert [(rule["scope"], rule["allow"]) for rule in rules] == [("project", True)]


def test_the_inbox_leads_into_the_question_and_a_key_answers_it(nvim: Nvim, model: ModelServer, repo: Path) -> None:
    model.script(calls(WRITE), says("written"))
    nvim.ask("write it")
    nvim.wait_screen("basis asks")
    nvim.lua("vim.ui.select = function(items, _, done) done(items[1]) end")

    nvim.command("stopinsert | Basis inbox")
    nvim.wait(lambda: nvim.lua("return vim.bo.filetype") == "basis-ask")
    look(nvim)
    nvim.type("y")

    nvim.wait_screen("written")
    assert (repo / "new.txt").exists()


def test_a_question_answered_elsewhere_closes_and_says_by_whom(
    nvim: Nvim, daemon: DaemonProcess, model: ModelServer
) -> None:
    model.script(calls(RUN), says("done"))
    nvim.ask("run it")
    nvim.wait_screen("basis asks", "$ touch ran")
    other = daemon.connect(name="basisctl@elsewhere")
    ask = other.call("basis/ask/list")["asks"][0]

    other.call("basis/ask/answer", {"askId": ask["askId"], "decision": "allow"})

    nvim.wait_screen("answered by basisctl@elsewhere: allowed", "allowed by basisctl@elsewhere")
    assert "$ touch ran" not in nvim.screen()
    nvim.wait_state("idle")


def test_two_editors_answer_one_question_once(open_nvim: "object", daemon: DaemonProcess, model: ModelServer) -> None:
    """The second Neovim joins the session, sees the same question, and answers it for the first."""
    model.script(calls(WRITE), says("written"))
    one, two = open_nvim(), open_nvim()  # type: ignore[operator]
    one.ask("write it")
    one.wait_screen("basis asks", "+one")

    two.command("Basis attach")
    two.wait_screen("write it", "basis asks", "+one", "waiting for you (1)")
    look(two)
    two.command("Basis approve")

    one.wait_screen("answered by nvim@", "written", "basis: idle")
    two.wait_screen("allowed by you", "written", "basis: idle")
    assert one.transcript().splitlines()[-1] == two.transcript().splitlines()[-1] == "written"


def test_a_command_typed_for_one_question_does_not_answer_the_next(
    nvim: Nvim, daemon: DaemonProcess, model: ModelServer, repo: Path
) -> None:
    """While `:Basis approve` is being typed somebody else answers, and another question takes the place."""
    model.script(calls(tool("spawn", {"input": "!touch first"})), calls(RUN), says("done"))
    nvim.ask("run both")
    nvim.wait_screen("basis asks", "$ touch first")
    look(nvim)
    nvim.type("<Esc>:Basis approve")
    nvim.wait_screen(":Basis approve")
    other = daemon.connect(name="other")
    ask = other.call("basis/ask/list")["asks"][0]
    other.call("basis/ask/answer", {"askId": ask["askId"], "decision": "allow"})
    nvim.wait_screen("$ touch ran")
    look(nvim)

    nvim.type("<CR>")

    nvim.wait(lambda: "only just appeared" in nvim.messages())
    assert not (repo / "ran").exists()
    nvim.command("Basis approve")
    nvim.wait_screen("done")
    assert (repo / "ran").exists()


def test_a_hostile_command_is_shown_as_what_it_is(nvim: Nvim, model: ModelServer) -> None:
    """Control characters can't hide a part of what will run, and neither can its length."""
    model.script(calls(tool("spawn", {"input": "!echo ok\x1b[2K\rrm -rf build # \u202e" + "x" * 3000})), says("no"))
    nvim.ask("run it")

    nvim.wait_screen("basis asks", "echo ok␛[2K␍rm -rf build # <U+202E>")


def test_statusline_and_autocommands_tell_what_happens(nvim: Nvim, model: ModelServer) -> None:
    nvim.lua(
        """
        seen = {}
        vim.api.nvim_create_autocmd("User", { pattern = "Basis*", callback = function(args)
          seen[#seen + 1] = args.match
        end })
        """
    )
    assert nvim.state() == "basis: disconnected"
    model.script(calls(RUN), says("done"))
    nvim.ask("run it")
    nvim.wait_state("waiting for you (1)")
    look(nvim)
    nvim.command("Basis approve session")
    nvim.wait_state("idle")

    seen = [name for name in nvim.lua("return seen") if name != "BasisStateChanged"]
    assert seen == [
        "BasisConnected",
        "BasisSessionChanged",
        "BasisTurnStarted",
        "BasisAskOpened",
        "BasisAskClosed",
        "BasisTurnEnded",
    ]
