"""A conversation in Neovim: prompts, streaming, context, and that the person's editor stays theirs."""

from pathlib import Path

import pytest

from support.daemon import DaemonProcess
from support.model_server import Gate, ModelServer, burst, calls, says, slow, thinks, tool
from support.nvim import Nvim

HOSTILE = (
    "\x1b]0;owned\x07 \x1b[31mred\x1b[0m \u202egnp.exe\u202c \u200bx \x9b31m\n"
    "vim: set makeprg=touch\\ owned shell=/bin/false:\n"
    "<script>alert(1)</script> %{system('touch owned')} %!v:lua.os.exit()\n"
    "```vim\n:call system('touch owned')\n```\n"
    "vim: foldexpr=system('touch\\ owned') foldmethod=expr:\n"
)


def test_a_prompt_typed_in_the_chat_is_answered_there(nvim: Nvim, model: ModelServer) -> None:
    model.script(says("Hello ", "from the model."))

    nvim.ask("say hello")

    nvim.wait_screen("❯ you", "say hello", "Hello from the model.", "basis: idle")
    assert nvim.prompt() == ""


def test_the_answer_is_shown_while_it_is_written(nvim: Nvim, model: ModelServer) -> None:
    gate = Gate()
    model.script(slow(thinks("Hm.") + says("first", " second"), gate=gate, before=2))

    nvim.ask("go")
    nvim.wait_screen("Hm.", "first", "basis: working")
    assert "second" not in nvim.transcript()
    gate.open()

    nvim.wait_screen("first second", "basis: idle")


def test_streaming_moves_neither_cursor_focus_view_nor_undo(nvim: Nvim, model: ModelServer) -> None:
    """The person writes in their file while the answer grows beside it, and looks at its beginning afterwards."""
    gate = Gate()
    long = "".join(f"line {n}\n" for n in range(200))
    model.script(slow(says(*long.splitlines(keepends=True), "the end"), gate=gate, before=100))
    nvim.command("edit a.txt")
    nvim.ask("go")
    nvim.wait_transcript("line 50")
    nvim.command("stopinsert | 1wincmd w")
    nvim.type("2Gcwchanged<Esc>")
    nvim.wait(lambda: nvim.api.current.line == "changed")
    chat = nvim.lua("return vim.fn.bufwinid(vim.fn.bufnr('basis://chat'))")
    nvim.lua("vim.api.nvim_win_set_cursor(..., { 8, 2 })", chat)
    nvim.command("redraw")
    view = nvim.lua("return vim.fn.getwininfo(...)[1].topline", chat)
    before = nvim.lua("return { vim.api.nvim_get_current_win(), vim.api.nvim_win_get_cursor(0), vim.fn.getjumplist() }")
    gate.open()

    nvim.wait_transcript("the end")

    assert before == nvim.lua(
        "return { vim.api.nvim_get_current_win(), vim.api.nvim_win_get_cursor(0), vim.fn.getjumplist() }"
    )
    assert nvim.lua("return vim.api.nvim_win_get_cursor(...)", chat) == [8, 2]
    assert nvim.lua("return vim.fn.getwininfo(...)[1].topline", chat) == view
    nvim.command("undo")
    assert nvim.api.current.line == "beta"
    assert nvim.api.current.buffer.name.endswith("a.txt")


def test_a_window_at_the_end_of_the_transcript_follows_it(nvim: Nvim, model: ModelServer) -> None:
    model.script(says(*(f"line {n}\n" for n in range(100)), "the end"))

    nvim.ask("go")

    nvim.wait_screen("the end", "basis: idle")


@pytest.mark.timeout(60)
def test_twenty_thousand_deltas_leave_the_editor_usable(nvim: Nvim, model: ModelServer) -> None:
    """The longest that Neovim computes for without looking at keys, by a timer inside it: in processor time, so
    that a busy machine makes no difference."""
    model.script(burst(says(*(f"w{n} " + ("\n" if n % 12 == 11 else "") for n in range(20_000)))))
    nvim.command("Basis chat")
    nvim.wait_state("idle")
    nvim.lua(
        """
        longest, last = 0, os.clock()
        vim.uv.new_timer():start(0, 5, vim.schedule_wrap(function()
          local now = os.clock()
          longest, last = math.max(longest, (now - last) * 1000), now
        end))
        """
    )
    nvim.ask("go")

    nvim.wait_end("w19999")

    longest = nvim.lua("return longest")
    assert longest < 50
    text = nvim.transcript()
    assert all(f"w{n} " in text for n in range(0, 20_000, 997))


def test_hostile_text_is_shown_and_never_obeyed(nvim: Nvim, model: ModelServer, repo: Path) -> None:
    model.script(says(HOSTILE, "x" * 1_000_000, " end"))

    nvim.ask("go")

    nvim.wait_transcript(" end")
    text = nvim.transcript()
    assert "␛]0;owned␇ ␛[31mred" in text and "<U+202E>gnp.exe<U+202C> <U+200B>x <U+009B>31m" in text
    assert "vim: set makeprg=touch" in text and "%{system('touch owned')}" in text
    assert max(len(line.encode()) for line in text.splitlines()) <= 1000
    assert text.replace("\n", "").count("x") >= 1_000_000
    nvim.screen()
    assert not list(repo.parent.rglob("owned"))
    assert nvim.lua("return vim.o.makeprg") == "make"
    assert nvim.api.funcs.execute("set title?").strip() == "notitle"


def test_a_hostile_title_does_not_reach_an_option_that_is_expanded(nvim: Nvim, model: ModelServer) -> None:
    model.script(says("ok"))

    nvim.ask("%{execute('let g:owned=1')} %=%#Error#")

    nvim.wait_screen("basis: idle", "cute('let g:owned=1')} %=%#Error#")
    assert nvim.api.funcs.exists("g:owned") == 0


def test_a_selection_goes_along_with_the_unsaved_text(nvim: Nvim, model: ModelServer) -> None:
    model.script(says("done"))
    nvim.command("edit a.txt")
    nvim.api.current.buffer[1] = "unsaved täxt 𝄞 here"
    nvim.type("2Gwvee:Basis send what is this?<CR>")

    request = model.wait_request()

    prompt = str(request.body)
    assert "täxt 𝄞" in prompt and "what is this?" in prompt
    assert "unsaved" not in prompt.replace("unsaved", "", 0) or "here" not in prompt
    nvim.wait_transcript("done")


def test_a_file_goes_along_as_the_buffer_has_it(nvim: Nvim, model: ModelServer) -> None:
    """A saved file goes by name only, a changed one with its text, as it is when the prompt is sent."""
    model.script(says("one"), says("two"))
    nvim.command("edit a.txt")
    nvim.command("Basis add")
    nvim.wait_screen("+a.txt")
    nvim.ask("first")
    first = str(model.wait_request(0).body)
    nvim.wait_transcript("one")
    nvim.command("stopinsert | 1wincmd w | Basis add")
    nvim.api.current.buffer[0] = "not on the disk"

    nvim.ask("second")

    second = str(model.wait_request(1).body["input" if "input" in model.requests[1].body else "messages"][-1])
    assert "a.txt" in first and "alpha" not in first
    assert "not on the disk" in second and "beta" in second


def test_a_file_with_a_strange_name_goes_along(nvim: Nvim, model: ModelServer, repo: Path) -> None:
    """Nothing in it is expanded, neither in the bar nor on the way."""
    name = "100%{execute('let g:owned=1')} ü#x.txt"
    (repo / name).write_text("x\n")
    model.script(says("seen"))
    nvim.lua("vim.cmd.edit(vim.fn.fnameescape(...))", name)
    nvim.command("Basis add")
    nvim.wait_screen("+100%{execute(")

    nvim.ask("look")

    assert f"File {repo / name}" in str(model.wait_request().body).replace("\\'", "'")
    assert nvim.api.funcs.exists("g:owned") == 0


def test_two_tab_pages_share_a_session_or_show_two(nvim: Nvim, model: ModelServer) -> None:
    model.script(says("one"), says("two"))
    nvim.ask("first")
    nvim.wait_transcript("one")
    nvim.command("stopinsert | tabnew | Basis chat")
    nvim.wait_screen("first", "one", "basis: idle")
    assert nvim.lua("return #require('basis.chat').all()") == 1

    nvim.command("Basis new")
    nvim.ask("second")
    nvim.wait_screen("second", "two")
    nvim.command("stopinsert | tabprevious")

    nvim.wait_screen("first", "one")
    assert "two" not in nvim.screen()


def test_a_buffer_that_is_no_utf8_can_be_sent(nvim: Nvim, model: ModelServer, repo: Path) -> None:
    (repo / "binary").write_bytes(b"\xff\xfe ok \x00 end\n")
    model.script(says("read it"))
    nvim.command("edit ++bin binary")
    nvim.command("%Basis send look")

    assert "ok" in str(model.wait_request().body)
    nvim.wait_transcript("read it")


def test_a_prompt_steers_the_turn_that_runs(nvim: Nvim, model: ModelServer) -> None:
    gate = Gate()
    model.script(slow(says("one") + calls(tool("read", {"path": "a.txt"})), gate=gate, before=1), says("two"))
    nvim.ask("begin")
    nvim.wait_transcript("one")

    nvim.command("Basis steer and be quick")
    nvim.wait(lambda: not nvim.lua("return require('basis.layout').current().is_sending"))
    gate.open()

    nvim.wait_transcript("and be quick", "✓ read a.txt", "two")
    assert "and be quick" in str(model.requests[1].body)


def test_stop_ends_the_turn_and_cancel_abandons_it(nvim: Nvim, model: ModelServer) -> None:
    model.script(slow(says("a", "b"), gate=Gate(), before=1), slow(says("c", "d"), gate=Gate(), before=1))
    nvim.ask("first")
    nvim.wait_state("working")
    nvim.command("Basis cancel")
    nvim.wait_transcript("cancelled")
    nvim.wait_state("idle")
    nvim.ask("second")
    nvim.wait_transcript("second")

    nvim.command("Basis! stop")

    nvim.wait_state("idle")


def test_waiting_for_the_provider_is_told(nvim: Nvim, model: ModelServer) -> None:
    from support.model_server import rate_limits

    model.script(rate_limits(retry_after=3), says("after all"))

    nvim.ask("go")

    nvim.wait(lambda: nvim.state().startswith("basis: waiting for the provider until "), nvim.state)
    nvim.wait_transcript("attempt 1 of")


def test_the_transcript_survives_being_deleted(nvim: Nvim, model: ModelServer) -> None:
    """`:bdelete` on the chat's buffers closes their windows; `:Basis chat` shows it again (105, 112)."""
    model.script(says("an answer"), says("another"))
    nvim.ask("go")
    nvim.wait_transcript("an answer")

    nvim.command("stopinsert | exe 'bdelete' bufnr('basis://chat') bufnr('basis://prompt')")
    nvim.ask("again")

    nvim.wait_screen("an answer", "another")
    names = nvim.lua("return vim.tbl_map(vim.api.nvim_buf_get_name, vim.api.nvim_list_bufs())")
    assert names.count("") <= 1


def test_the_chat_opens_beside_a_window_that_is_fixed(nvim: Nvim, model: ModelServer) -> None:
    """A window with 'winfixbuf' and a buffer that can't be changed are left alone (peers.md 110)."""
    model.script(says("fine"))
    nvim.command("edit a.txt | setlocal winfixbuf nomodifiable")

    nvim.ask("go")

    nvim.wait_screen("fine", "alpha")


def test_sessions_can_be_chosen_and_begun(nvim: Nvim, model: ModelServer) -> None:
    model.script(says("one"), says("two"))
    nvim.ask("the first conversation")
    nvim.wait_transcript("one")
    nvim.command("stopinsert | Basis new")
    nvim.wait(lambda: "one" not in nvim.transcript())
    nvim.ask("the second conversation")
    nvim.wait_transcript("two")
    nvim.lua(
        """
        vim.ui.select = function(items, options, done)
          shown = vim.tbl_map(options.format_item, items)
          done(items[vim.startswith(shown[1], "the first") and 1 or 2])
        end
        """
    )

    nvim.command("stopinsert | Basis sessions")

    nvim.wait_transcript("the first conversation", "one")
    assert len(nvim.lua("return shown")) == 2
    assert "two" not in nvim.transcript()


def test_earlier_messages_are_loaded_on_request(
    nvim: Nvim, daemon: DaemonProcess, model: ModelServer, environment: dict[str, str], repo: Path
) -> None:
    """An attach brings about a hundred items; the first line leads to those before."""
    model.script(*(says(f"answer {n}.") for n in range(60)))
    client = daemon.connect()
    client.call("basis/workspace/open", {"path": str(repo), "env": environment})
    session = client.call("basis/session/new", {"workspace": str(repo)})["sessionId"]
    client.call("basis/session/attach", {"sessionId": session})
    for number in range(60):
        block = {"type": "text", "text": f"question {number}."}
        client.call("basis/session/prompt", {"sessionId": session, "input": [block]})
        client.event_of_type("run_finished")
    nvim.command(f"Basis attach {session}")
    nvim.wait_transcript("earlier messages", "answer 59.")
    assert "question 0." not in nvim.transcript()

    nvim.command("stopinsert | wincmd k")
    nvim.type("gg<CR>")

    text = nvim.wait_transcript(*(f"answer {n}." for n in range(60)))
    places = [text.index(f"answer {n}.") for n in range(60)]
    assert places == sorted(places)
    assert text.count("question 30.") == 1
