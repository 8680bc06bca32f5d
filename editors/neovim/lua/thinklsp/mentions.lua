--- Completion after `#` in chat documents: each word inserts the mention with `@` that the server reads.
local M = {}

local KIND = vim.lsp.protocol.CompletionItemKind.Reference

--- Return the file buffer that was used last, other than the chat document.
---@param chat integer
---@return integer?
local function file_buffer(chat)
  local found
  for _, info in ipairs(vim.fn.getbufinfo({ buflisted = 1 })) do
    local is_file = vim.bo[info.bufnr].buftype == '' and info.name ~= '' and info.bufnr ~= chat
    if is_file and not info.name:find('/.thinklsp/', 1, true) and (not found or info.lastused > found.lastused) then
      found = info
    end
  end
  return found and found.bufnr
end

---@param bufnr integer
---@param root string?
---@return string
local function mention_of(bufnr, root)
  local path = vim.api.nvim_buf_get_name(bufnr)
  if root and vim.startswith(path, root .. '/') then
    path = path:sub(#root + 2)
  end
  return path:find('[%s:"]') and ('@"%s"'):format(path:gsub('["\\]', '\\%0')) or '@' .. path
end

--- Add the words after `#` to the server's answer to a completion request.
---@param params lsp.CompletionParams
---@param root string?
---@param answer lsp.CompletionList?
---@return lsp.CompletionList?
function M.completed(params, root, answer)
  local bufnr = vim.uri_to_bufnr(params.textDocument.uri)
  local row = params.position.line
  local line = vim.api.nvim_buf_get_lines(bufnr, row, row + 1, false)[1] or ''
  local before = line:sub(1, vim.api.nvim_win_get_cursor(0)[2])
  local typed = before:match('#(%l*)$')
  if not typed or before:match('^#+%s*$') then
    return answer
  end
  local file = file_buffer(bufnr)
  local words = { diagnostics = '@diagnostics', selection = '@selection' }
  if file then
    words.buffer = mention_of(file, root)
    local first, last = vim.api.nvim_buf_get_mark(file, '<')[1], vim.api.nvim_buf_get_mark(file, '>')[1]
    if first > 0 and last >= first then
      words.selection = ('%s:%d-%d'):format(words.buffer, first, last)
    end
  end
  local start = { line = row, character = params.position.character - #typed - 1 }
  local items = {}
  for word, text in vim.spairs(words) do
    if vim.startswith(word, typed) then
      table.insert(items, {
        label = '#' .. word,
        detail = text,
        kind = KIND,
        filterText = '#' .. word,
        textEdit = { range = { start = start, ['end'] = params.position }, newText = text },
      })
    end
  end
  return { isIncomplete = false, items = items }
end

return M
