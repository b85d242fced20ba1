--- Highlight groups, and Markdown without side effects.

local M = {}

local LINKS = {
  BasisTitle = "Comment",
  BasisUser = "Title",
  BasisTool = "Comment",
  BasisToolFailed = "DiagnosticError",
  BasisReasoning = "Comment",
  BasisNotice = "Comment",
  BasisError = "DiagnosticError",
  BasisAsk = "DiagnosticWarn",
  BasisAdded = "DiffAdd",
  BasisRemoved = "DiffDelete",
  BasisHunk = "DiffChange",
  BasisBanner = "ErrorMsg",
}

for group, target in pairs(LINKS) do
  vim.api.nvim_set_hl(0, group, { link = target, default = true })
end

-- A transcript chooses no parser: a code fence may name any, and one that is installed would be loaded for it.
local INJECTIONS = {
  markdown = '((inline) @injection.content (#set! injection.language "markdown_inline"))',
  markdown_inline = "",
}

---@type table<integer, vim.treesitter.highlighter>
local highlighted = {}

--- Highlight a buffer as Markdown, if its parsers are there. The file type stays ours, so no other plugin acts on it.
---@param buffer integer
function M.markdown(buffer)
  local ok, fault = pcall(function()
    local parser = vim.treesitter.get_parser(buffer, "markdown", { injections = INJECTIONS })
    highlighted[buffer] = vim.treesitter.highlighter.new(assert(parser))
  end)
  if not ok then
    require("basis.say").log("no Markdown colours: " .. tostring(fault))
  end
end

--- Highlight a buffer no longer.
---@param buffer integer
function M.no_markdown(buffer)
  local highlighter = highlighted[buffer]
  highlighted[buffer] = nil
  if highlighter and vim.api.nvim_buf_is_loaded(buffer) then
    highlighter:destroy()
  end
end

return M
