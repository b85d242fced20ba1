--- The plugin's functions for configurations and other plugins. Loading this loads nothing else.

local M = {}

--- Set options. Never needed: without it everything is at its default.
---@param options? table see |basis-options|
function M.setup(options)
  for _, problem in ipairs(require("basis.config").set(options)) do
    require("basis.say").error(problem)
  end
end

--- What is going on, from memory. Nothing is loaded or connected for it.
---@return basis.Status
function M.status()
  if not package.loaded["basis.client"] then
    return { state = "disconnected", asks = 0, text = "disconnected" }
  end
  return require("basis.status").get()
end

--- `status()` in words for a status line, such as `%{v:lua.require'basis'.statusline()}`. Only words of our own, no text of
--- a session: some status lines expand what they are given.
---@return string
function M.statusline()
  return "basis: " .. M.status().text
end

--- Open the chat of the current tab page and go to its prompt.
function M.chat()
  require("basis.commands").run_words({ "chat" })
end

--- Send `text` as a prompt.
---@param text string
function M.send(text)
  require("basis.commands").run_words({ "send", text })
end

return M
