-- What the driver asks a Neovim under trial, and a picker in place of the one that waits at the keyboard.
-- `wanted`: what the next list is chosen by; `also`: the lists after that.
local trial = { offered = {}, wanted = {}, doubles = 0, select = vim.ui.select }
_G.trial = trial

-- The language's own server, as any other.
vim.api.nvim_create_autocmd('FileType', {
  pattern = 'python',
  callback = function(event)
    vim.lsp.start({ name = 'lint', cmd = { 'thinklsp-lint' } }, { bufnr = event.buf })
  end,
})

--- Chooses the first item that holds the next wanted text; where there is none the user dismisses the list.
vim.ui.select = function(items, options, on_choice)
  local format = options.format_item or tostring
  local wanted = table.remove(trial.wanted, 1) or trial.also
  local shown, chosen = {}, nil
  for index, item in ipairs(items) do
    shown[index] = format(item)
    if not chosen and wanted and shown[index]:find(wanted, 1, true) then
      chosen = index
    end
  end
  table.insert(trial.offered, shown)
  trial.prompt = options.prompt
  on_choice(chosen and items[chosen], chosen)
end

--- Names of the servers of a buffer.
function trial.servers(bufnr)
  local names = vim.tbl_map(function(client)
    return client.name
  end, vim.lsp.get_clients({ bufnr = bufnr or 0 }))
  table.sort(names)
  return names
end

--- The first client of a server, for as long as it runs.
function trial.client(name)
  return vim.lsp.get_clients({ name = name })[1]
end

--- Whether the server runs without any key.
function trial.has_no_key()
  local client = trial.client('thinklsp')
  local report = client and require('thinklsp.client').ask_now(client, 'thinklsp.doctor', {}, 5000)
  return report ~= nil and report.providers ~= nil and #report.providers.keyed == 0
end

function trial.text(bufnr)
  return table.concat(vim.api.nvim_buf_get_lines(bufnr or 0, 0, -1, false), '\n') .. '\n'
end

--- Whether any buffer holds a text.
function trial.any_text(text)
  return vim.iter(vim.api.nvim_list_bufs()):any(function(bufnr)
    return trial.text(bufnr):find(text, 1, true) ~= nil
  end)
end

--- Whether every buffer that holds a text is saved.
function trial.is_saved(text)
  return vim.iter(vim.api.nvim_list_bufs()):all(function(bufnr)
    return not vim.bo[bufnr].modified or not trial.text(bufnr):find(text, 1, true)
  end)
end

--- The status line of the current window, as it is drawn.
function trial.status_line()
  return vim.api.nvim_eval_statusline(vim.o.statusline, {}).str
end

--- The virtual lines of a buffer: { row, lines } for each place.
function trial.shown(bufnr)
  local namespace = vim.api.nvim_get_namespaces().thinklsp
  local found = {}
  if not namespace then
    return found
  end
  for _, mark in ipairs(vim.api.nvim_buf_get_extmarks(bufnr, namespace, 0, -1, { details = true })) do
    local lines = vim.tbl_map(function(chunks)
      return chunks[1][1]
    end, mark[4].virt_lines or {})
    table.insert(found, { mark[2], lines })
  end
  return found
end

--- Whether virtual lines of a buffer hold a text.
function trial.shows(bufnr, text)
  return vim.iter(trial.shown(bufnr)):any(function(place)
    return table.concat(place[2], '\n'):find(text, 1, true) ~= nil
  end)
end

--- Watches a buffer: counts the changes by which `text` came into it while virtual lines showed it, too.
function trial.watch(bufnr, text)
  vim.api.nvim_buf_attach(bufnr, false, {
    on_lines = function()
      if trial.text(bufnr):find(text, 1, true) and trial.shows(bufnr, text) then
        trial.doubles = trial.doubles + 1
      end
    end,
  })
end

--- Number of the first buffer whose name ends so.
function trial.buffer(ending)
  for _, bufnr in ipairs(vim.api.nvim_list_bufs()) do
    if vim.endswith(vim.api.nvim_buf_get_name(bufnr), ending) then
      return bufnr
    end
  end
end

--- What the client answers when the server edits the first line of the current buffer, as it was so many versions ago.
function trial.receives_edit(offset, text)
  local bufnr = vim.api.nvim_get_current_buf()
  local client = vim.lsp.get_clients({ name = 'thinklsp', bufnr = bufnr })[1]
  local start = { line = 0, character = 0 }
  local change = {
    textDocument = { uri = vim.uri_from_bufnr(bufnr), version = vim.lsp.util.buf_versions[bufnr] + offset },
    edits = { { range = { start = start, ['end'] = start }, newText = text } },
  }
  local context = { client_id = client.id, method = 'workspace/applyEdit' }
  return client.handlers['workspace/applyEdit'](nil, { edit = { documentChanges = { change } } }, context)
end

local function begins_with(title)
  return function(action)
    return vim.startswith(action.title, title)
  end
end

--- Whether a code action is offered in the first line of the current buffer.
function trial.offers(title)
  local start = { line = 0, character = 0 }
  local answers = vim.lsp.buf_request_sync(0, 'textDocument/codeAction', {
    textDocument = vim.lsp.util.make_text_document_params(0),
    range = { start = start, ['end'] = start },
    context = { diagnostics = {} },
  }, 2000)
  return vim.iter(vim.tbl_values(answers or {})):any(function(answer)
    return vim.iter(answer.result or {}):any(begins_with(title))
  end)
end

--- Runs the only code action at the cursor whose title begins so.
function trial.act(title)
  vim.lsp.buf.code_action({ apply = true, filter = begins_with(title) })
end

--- The text of the chat window, or an empty one.
function trial.chat_text()
  for _, winid in ipairs(vim.api.nvim_tabpage_list_wins(0)) do
    local bufnr = vim.api.nvim_win_get_buf(winid)
    if vim.w[winid].thinklsp_chat and vim.endswith(vim.api.nvim_buf_get_name(bufnr), '.chat.md') then
      return trial.text(bufnr)
    end
  end
  return ''
end

--- Wipes buffers by the paths of their files.
function trial.forget(paths)
  vim.cmd.enew()
  for _, bufnr in ipairs(vim.api.nvim_list_bufs()) do
    if vim.tbl_contains(paths, vim.api.nvim_buf_get_name(bufnr)) then
      vim.api.nvim_buf_delete(bufnr, { force = true })
    end
  end
end

--- What was said: by Neovim, where long messages are cut, and by the plugin in full.
function trial.messages()
  local said = vim.api.nvim_exec2('messages', { output = true }).output
  local found, messages = pcall(require, 'thinklsp.messages')
  return said .. (found and '\n' .. messages.all() or '')
end

--- What the plugin has said since `:messages clear`, or since the beginning.
function trial.own_messages()
  local said = vim.api.nvim_exec2('messages', { output = true }).output
  return table.concat(
    vim.tbl_filter(function(line)
      return vim.startswith(line, 'thinklsp: ')
    end, vim.split(said, '\n')),
    '\n'
  )
end

--- The windows, and the buffer of each that has the focus.
function trial.windows()
  return { #vim.api.nvim_list_wins(), vim.api.nvim_buf_get_name(0) }
end

--- The text of the float that has the focus, or nil.
function trial.float()
  return vim.api.nvim_win_get_config(0).relative ~= '' and trial.text() or nil
end

--- What a completion at the cursor of the current buffer would insert.
function trial.completions()
  local params = vim.lsp.util.make_position_params(0, 'utf-16')
  local answers = vim.lsp.buf_request_sync(0, 'textDocument/completion', params, 2000)
  local found = {}
  for _, answer in pairs(answers or {}) do
    for _, item in ipairs(answer.result and answer.result.items or {}) do
      table.insert(found, item.textEdit.newText)
    end
  end
  return found
end
