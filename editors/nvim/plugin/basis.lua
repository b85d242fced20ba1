-- Defines `:Basis`. Everything else is loaded when the command is first used.
if vim.g.loaded_basis then
  return
end
vim.g.loaded_basis = true

vim.api.nvim_create_user_command("Basis", function(command)
  require("basis.commands").run(command)
end, {
  nargs = "*",
  range = true,
  bang = true,
  desc = "Talk to the basis daemon",
  complete = function(lead, line)
    return require("basis.commands").complete(lead, line)
  end,
})
