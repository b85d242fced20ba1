"""A conversation in Neovim: prompts, streaming, context, what the transcript does to the person's editor (nothing)."""

from support.model_server import ModelServer, says
from support.nvim import Nvim


def test_a_prompt_typed_in_the_chat_is_answered_there(nvim: Nvim, model: ModelServer) -> None:
    model.script(says("Hello ", "from the model."))

    nvim.ask("say hello")

    nvim.wait_screen("❯ you", "say hello", "Hello from the model.", "basis: idle")
    assert nvim.prompt() == ""
