--- Chat documents as buffers: which session one names, where its prompt ends, and how one is opened.
local client = require('thinklsp.client')

local M = {}

local FOLDER = '.thinklsp/chat'
local SESSION = '^\239?\187?\191?<!%-%- thinklsp session:%s*(.-)%s*%-%->'

---@return string
local function suffix()
  local settings = client.options.settings
  return settings['chat.fileSuffix'] or (settings.chat or {}).fileSuffix or '.chat.md'
end

---@param bufnr integer
---@return boolean
function M.is_chat(bufnr)
  return vim.endswith(vim.api.nvim_buf_get_name(bufnr), suffix())
end

---@param line string?
---@return string?
local function named(line)
  local session = line and line:match(SESSION)
  return session ~= 'new' and session or nil
end

--- The session that a chat document names; nil in every other buffer.
---@param bufnr integer
---@return string?
function M.session_of(bufnr)
  return M.is_chat(bufnr) and named(vim.api.nvim_buf_get_lines(bufnr, 0, 1, false)[1]) or nil
end

--- The last row with text: below it the answer comes.
---@param bufnr integer
---@return integer
function M.end_of(bufnr)
  local lines = vim.api.nvim_buf_get_lines(bufnr, 0, -1, false)
  for row = #lines, 1, -1 do
    if lines[row]:find('%S') then
      return row - 1
    end
  end
  return 0
end

---@param root string
---@param session string
---@return string? path of a document that names the session
local function document_of(root, session)
  for _, bufnr in ipairs(vim.api.nvim_list_bufs()) do
    if vim.api.nvim_buf_is_loaded(bufnr) and M.session_of(bufnr) == session then
      return vim.api.nvim_buf_get_name(bufnr)
    end
  end
  local folder = vim.fs.joinpath(root, FOLDER)
  for name, kind in vim.fs.dir(folder) do
    local path = vim.fs.joinpath(folder, name)
    if kind == 'file' and vim.endswith(name, suffix()) and named(vim.fn.readfile(path, '', 1)[1]) == session then
      return path
    end
  end
end

--- Opens the chat document of a session; one that has none yet gets one, to be saved by the user.
---@param root string
---@param session string
function M.open(root, session)
  local path = document_of(root, session)
  if path then
    vim.cmd.split(vim.fn.fnameescape(path))
    vim.api.nvim_win_set_cursor(0, { vim.api.nvim_buf_line_count(0), 0 })
    return
  end
  local folder = vim.fs.joinpath(root, FOLDER)
  vim.fn.mkdir(folder, 'p')
  local ignore = vim.fs.joinpath(folder, '.gitignore')
  if vim.fn.filereadable(ignore) == 0 then
    vim.fn.writefile({ '*' }, ignore)
  end
  vim.cmd.split(vim.fn.fnameescape(vim.fs.joinpath(folder, session:sub(1, 12) .. suffix())))
  vim.api.nvim_buf_set_lines(0, 0, -1, false, { ('<!-- thinklsp session: %s -->'):format(session), '', '## You', '' })
  vim.api.nvim_win_set_cursor(0, { 4, 0 })
end

return M
