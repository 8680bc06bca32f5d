--- Chat documents in buffers: their session, the end of their prompt, and opening them.
local client = require('thinklsp.client')

local M = {}

local FOLDER = '.thinklsp/chat'
local SESSION = '^\239?\187?\191?<!%-%- thinklsp session:%s*(.-)%s*%-%->'

---@return string
function M.suffix()
  local settings = client.options.settings
  return settings['chat.fileSuffix'] or (settings.chat or {}).fileSuffix or '.chat.md'
end

---@param bufnr integer
---@return boolean
function M.is_chat(bufnr)
  return vim.endswith(vim.api.nvim_buf_get_name(bufnr), M.suffix())
end

---@param line string?
---@return string?
local function named(line)
  local session = line and line:match(SESSION)
  return session ~= 'new' and session or nil
end

--- Return the session id in the first line of a chat document, or nil for other buffers.
---@param bufnr integer
---@return string?
function M.session_of(bufnr)
  return M.is_chat(bufnr) and named(vim.api.nvim_buf_get_lines(bufnr, 0, 1, false)[1]) or nil
end

--- Return the last row with text. The answer appears below it.
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
---@return string? path of a chat document of the session
local function document_of(root, session)
  for _, bufnr in ipairs(vim.api.nvim_list_bufs()) do
    if vim.api.nvim_buf_is_loaded(bufnr) and M.session_of(bufnr) == session then
      return vim.api.nvim_buf_get_name(bufnr)
    end
  end
  local folder = vim.fs.joinpath(root, FOLDER)
  for name, kind in vim.fs.dir(folder) do
    local path = vim.fs.joinpath(folder, name)
    if kind == 'file' and vim.endswith(name, M.suffix()) and named(vim.fn.readfile(path, '', 1)[1]) == session then
      return path
    end
  end
end

--- Show the title of the session above the chat window.
---@param winid integer
---@param bufnr integer
local function name_window(winid, bufnr)
  local function put(title)
    if vim.api.nvim_win_is_valid(winid) and vim.api.nvim_win_get_buf(winid) == bufnr then
      vim.wo[winid].winbar = '%<thinklsp: ' .. title:gsub('%%', '%%%%')
    end
  end
  local session, found = M.session_of(bufnr), vim.lsp.get_clients({ name = client.NAME })[1]
  put('new chat')
  if session and found then
    client.ask(found, 'thinklsp.sessions', { op = 'list' }, bufnr, function(list)
      for _, one in ipairs(list or {}) do
        if one.sessionId == session then
          put(one.title)
        end
      end
    end)
  end
end

--- Return the chat window of the current tab page.
---@return integer?
local function window()
  return vim.iter(vim.api.nvim_tabpage_list_wins(0)):find(function(winid)
    return vim.w[winid].thinklsp_chat and M.is_chat(vim.api.nvim_win_get_buf(winid))
  end)
end

---@type integer? the chat document that was shown last
local latest

--- Show a chat document in the chat window at the side, which is opened if necessary.
---@param bufnr integer
---@param takes_focus boolean
function M.show(bufnr, takes_focus)
  local winid = window()
  vim.fn.bufload(bufnr)
  vim.bo[bufnr].buflisted = true
  latest = bufnr
  if winid then
    vim.api.nvim_win_set_buf(winid, bufnr)
  else
    local width = math.max(40, math.floor(vim.o.columns * 0.4))
    winid = vim.api.nvim_open_win(bufnr, false, { split = 'right', win = -1, width = width })
    vim.w[winid].thinklsp_chat = true
    vim.wo[winid].wrap, vim.wo[winid].linebreak = true, true
  end
  vim.api.nvim_win_set_cursor(winid, { vim.api.nvim_buf_line_count(bufnr), 0 })
  name_window(winid, bufnr)
  -- An open review has the focus until it is answered.
  if takes_focus and vim.api.nvim_win_get_config(0).relative == '' then
    vim.api.nvim_set_current_win(winid)
  end
end

--- Close the chat window, or open it with the document that was shown last. Return false if there is none.
---@return boolean
function M.toggle()
  local winid = window()
  if winid then
    vim.api.nvim_win_close(winid, false)
    return true
  end
  local is_loaded = latest and vim.api.nvim_buf_is_loaded(latest)
  local bufnr = is_loaded and latest or vim.iter(vim.api.nvim_list_bufs()):find(M.is_chat)
  if bufnr then
    M.show(bufnr, true)
  end
  return bufnr ~= nil
end

--- Update the title above the chat window after a turn.
function M.refresh()
  local winid = window()
  if winid then
    name_window(winid, vim.api.nvim_win_get_buf(winid))
  end
end

--- Save the chat documents of an edit that was applied, so that Neovim can be left without a question about them.
---@param edit lsp.WorkspaceEdit
function M.save(edit)
  for _, change in ipairs(edit.documentChanges or {}) do
    local bufnr = change.textDocument and vim.uri_to_bufnr(change.textDocument.uri)
    if bufnr and M.is_chat(bufnr) then
      vim.api.nvim_buf_call(bufnr, function()
        -- Without autocommands, because a formatter would rewrite the conversation.
        vim.cmd('silent! noautocmd update')
      end)
    end
  end
end

--- Open the chat document of a session, or an unsaved new one if the session does not have a document.
---@param root string
---@param session string
function M.open(root, session)
  local path = document_of(root, session)
  if path then
    M.show(vim.fn.bufadd(path), true)
    return
  end
  local folder = vim.fs.joinpath(root, FOLDER)
  vim.fn.mkdir(folder, 'p')
  local ignore = vim.fs.joinpath(folder, '.gitignore')
  if vim.fn.filereadable(ignore) == 0 then
    vim.fn.writefile({ '*' }, ignore)
  end
  M.show(vim.fn.bufadd(vim.fs.joinpath(folder, session:sub(1, 12) .. M.suffix())), true)
  vim.api.nvim_buf_set_lines(0, 0, -1, false, { ('<!-- thinklsp session: %s -->'):format(session), '', '## You', '' })
  vim.api.nvim_win_set_cursor(0, { 4, 0 })
  M.refresh()
end

return M
