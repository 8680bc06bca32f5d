-- What the driver asks a Neovim under trial, and a picker in place of the one that waits at the keyboard.
-- `wanted`: what the next list is chosen by; `also`: the lists after that.
local trial = { offered = {}, wanted = {}, doubles = 0 }
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

function trial.text(bufnr)
  return table.concat(vim.api.nvim_buf_get_lines(bufnr or 0, 0, -1, false), '\n') .. '\n'
end

--- Whether any buffer holds a text.
function trial.any_text(text)
  return vim.iter(vim.api.nvim_list_bufs()):any(function(bufnr)
    return trial.text(bufnr):find(text, 1, true) ~= nil
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

function trial.messages()
  return vim.api.nvim_exec2('messages', { output = true }).output
end
