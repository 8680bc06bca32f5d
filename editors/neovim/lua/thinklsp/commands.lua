--- The subcommands of `:Thinklsp`, their completion and the messages about their results.
local chats = require('thinklsp.chats')
local client = require('thinklsp.client')
local first_run = require('thinklsp.first_run')
local messages = require('thinklsp.messages')
local stream = require('thinklsp.stream')

local M = {}

---@class thinklsp.Call
---@field bufnr integer
---@field words string the text after the subcommand
---@field place? { uri: string, range: lsp.Range } the lines of the command's range
---@field row integer the row below which the answer is shown, counted from 0

local say = messages.say

---@param text string Markdown
local function show(text)
  vim.cmd.new()
  vim.bo.buftype, vim.bo.bufhidden, vim.bo.swapfile = 'nofile', 'wipe', false
  vim.api.nvim_buf_set_lines(0, 0, -1, false, vim.split(text, '\n'))
  vim.bo.modifiable, vim.bo.filetype = false, 'markdown'
end

--- Execute a command of the server and pass the answer on. `client.ask` reports errors to the user.
---@param bufnr integer
---@param command string
---@param argument table
---@param on_answer fun(answer: any)
local function ask(bufnr, command, argument, on_answer)
  local found = client.of(bufnr)
  if found then
    client.ask(found, command, argument, bufnr, function(answer)
      if answer then
        on_answer(answer)
      end
    end)
  end
end

local begin

--- Start a turn, and show its answer below the row while the model writes it.
---@param bufnr integer
---@param command string
---@param argument table
---@param row integer
function begin(bufnr, command, argument, row)
  local found = client.of(bufnr)
  if not found then
    return
  end
  local shown = stream.open(bufnr, row, chats.refresh)
  local function fail(message)
    -- The report is made without a connection if no provider has a key.
    client.ask(found, 'thinklsp.doctor', {}, bufnr, function(report)
      if first_run.is_needed(report) then
        first_run.offer(report, function()
          begin(bufnr, command, argument, row)
        end)
      else
        messages.warn(message)
      end
    end)
  end
  client.ask(found, command, argument, bufnr, function(turn)
    if not (turn and turn.turnId) then
      shown:close()
      return
    end
    -- Attach instead of passing a partial result token with the command: otherwise, the server would not write the
    -- answer into the chat document.
    local token = shown:follow(found.id, turn.turnId)
    local attach = { op = 'attach', sessionId = turn.sessionId, partialResultToken = token }
    client.ask(found, 'thinklsp.sessions', attach, bufnr, function(answer)
      if not (answer and answer.attached) then
        shown:close()
      end
    end)
  end, fail)
end

---@param verb string
---@param outcome { applied: string, files: { uri: string, status: string, reason: string? }[] }
local function tell_outcome(verb, outcome)
  local left = {}
  for _, file in ipairs(outcome.files) do
    if file.status ~= 'applied' then
      table.insert(left, ('%s: %s'):format(vim.fs.basename(vim.uri_to_fname(file.uri)), file.reason or file.status))
    end
  end
  if #left > 0 then
    messages.warn(('some files were not %s. %s'):format(verb, table.concat(left, '; ')))
  else
    say(('%s, %d file%s'):format(verb, #outcome.files, #outcome.files == 1 and '' or 's'))
  end
end

---@param key string effort, thinking or model
---@param answer { value: string?, effective: string?, notice: string? }
local function tell_choice(key, answer)
  local value, effective = answer.value or 'default', answer.effective
  local used = effective and effective ~= value and (' (%s)'):format(effective) or ''
  say(('%s is %s%s%s'):format(key, value, used, answer.notice and '. ' .. answer.notice or ''))
end

---@param bufnr integer
---@param key string
---@param value? string
local function choose(bufnr, key, value)
  local argument = { value = value, sessionId = chats.session_of(bufnr) }
  ask(bufnr, 'thinklsp.' .. key, argument, function(answer)
    tell_choice(key, answer)
  end)
end

---@param bufnr integer
---@param verb 'apply'|'undo'
---@param argument table
local function settle(bufnr, verb, argument)
  ask(bufnr, 'thinklsp.' .. verb, argument, function(outcome)
    tell_outcome(verb == 'apply' and 'applied' or 'undone', outcome)
  end)
end

---@param words string
---@return string?
local function some(words)
  return words ~= '' and words or nil
end

---@param name string
---@return fun(call: thinklsp.Call)
local function action(name)
  return function(call)
    local argument = { name = name, uri = vim.uri_from_bufnr(call.bufnr), instruction = some(call.words) }
    argument.range = call.place and call.place.range
    begin(call.bufnr, 'thinklsp.action', argument, call.row)
  end
end

---@param key string
---@return fun(call: thinklsp.Call)
local function choice(key)
  return function(call)
    choose(call.bufnr, key, some(call.words))
  end
end

---@param figures table<string, number?>
---@return string
local function counted(figures)
  local cost = figures.costUsd == 0 and '' or figures.costUsd and (', $%.4f'):format(figures.costUsd) or ', cost unknown'
  return ('%s in, %s out%s'):format(figures.inputTokens or '?', figures.outputTokens or '?', cost)
end

---@param bufnr integer
---@return string
local function encoding_of(bufnr)
  return (vim.lsp.get_clients({ name = client.NAME, bufnr = bufnr })[1] or {}).offset_encoding or 'utf-16'
end

---@param bufnr integer
---@param row integer
---@param column integer in bytes
---@return { uri: string, range: lsp.Range }
local function place_at(bufnr, row, column)
  local position = require('thinklsp.diagnostics').position(bufnr, row, column, encoding_of(bufnr))
  return { uri = vim.uri_from_bufnr(bufnr), range = { start = position, ['end'] = position } }
end

---@type table<string, fun(call: thinklsp.Call)>
local SUBCOMMANDS = {
  actions = function(call)
    vim.lsp.buf.code_action({
      range = call.place and { start = { call.place.range.start.line + 1, 0 }, ['end'] = { call.row + 1, 2 ^ 30 } },
      filter = function(offered)
        return vim.startswith(offered.title, 'thinklsp: ')
      end,
    })
  end,
  apply = function(call)
    settle(call.bufnr, 'apply', {})
  end,
  changes = function()
    require('thinklsp.changes').show()
  end,
  chat = function(call)
    local argument = vim.tbl_extend('force', { prompt = some(call.words) }, call.place or {})
    argument.sessionId = call.words ~= '' and chats.session_of(call.bufnr) or nil
    begin(call.bufnr, 'thinklsp.chat', argument, call.row)
  end,
  compact = function(call)
    begin(call.bufnr, 'thinklsp.compact', {
      sessionId = chats.session_of(call.bufnr),
      instructions = some(call.words),
    }, call.row)
  end,
  discard = function(call)
    ask(call.bufnr, 'thinklsp.discard', {}, function(dropped)
      say(('discarded, %d file%s'):format(#dropped.files, #dropped.files == 1 and '' or 's'))
    end)
  end,
  doctor = function(call)
    ask(call.bufnr, 'thinklsp.doctor', {}, function(report)
      show(table.concat(require('thinklsp.health').told(report), '\n'))
    end)
  end,
  edit = function(call)
    local row, column = unpack(vim.api.nvim_win_get_cursor(0))
    local place = call.place or place_at(call.bufnr, row - 1, column)
    local function run(instruction)
      if instruction and instruction:find('%S') then
        local argument = { name = 'edit', uri = place.uri, range = place.range, instruction = instruction }
        begin(call.bufnr, 'thinklsp.action', argument, call.row)
      end
    end
    if call.words ~= '' then
      run(call.words)
    else
      vim.ui.input({ prompt = 'thinklsp: edit: ' }, run)
    end
  end,
  effort = choice('effort'),
  explain = action('explain'),
  log = function(call)
    ask(call.bufnr, 'thinklsp.doctor', {}, function(report)
      if report.store.logBytes then
        vim.cmd.split(vim.fn.fnameescape(report.store.log))
      else
        say('the log is empty: ' .. report.store.log)
      end
    end)
  end,
  mcp = function(call)
    ask(call.bufnr, 'thinklsp.mcp', {}, function(report)
      show(table.concat(require('thinklsp.mcp').told(report), '\n'))
    end)
  end,
  messages = function()
    show(messages.all())
  end,
  model = choice('model'),
  review = action('review'),
  send = function(call)
    local own = chats.is_chat(call.bufnr)
    local row = own and chats.end_of(call.bufnr) or call.row
    begin(call.bufnr, 'thinklsp.send', { uri = own and vim.uri_from_bufnr(call.bufnr) or nil }, row)
  end,
  sessions = function(call)
    require('thinklsp.sessions').pick(call.bufnr, some(call.words), ask, show)
  end,
  setup = function(call)
    ask(call.bufnr, 'thinklsp.doctor', {}, function(report)
      first_run.offer(report, function() end)
    end)
  end,
  stop = function(call)
    client.stop(call.bufnr)
  end,
  thinking = choice('thinking'),
  toggle = function()
    if not chats.toggle() then
      say('there is no chat yet; start one with :Thinklsp chat')
    end
  end,
  undo = function(call)
    settle(call.bufnr, 'undo', {})
  end,
  usage = function(call)
    ask(call.bufnr, 'thinklsp.usage', { sessionId = chats.session_of(call.bufnr) }, function(usage)
      say(('this session: %s; today: %s'):format(counted(usage.total), counted(usage.today)))
    end)
  end,
}

--- Execute a command of the server for a code action or a code lens.
---@param command string
---@param argument table
---@param bufnr integer
function M.execute(command, argument, bufnr)
  local name = command:match('^thinklsp%.(.*)$')
  if name == 'apply' or name == 'undo' then
    settle(bufnr, name, argument)
  elseif name == 'effort' then
    choose(bufnr, name, argument.value)
  else
    local row = vim.api.nvim_win_get_cursor(0)[1] - 1
    if name == 'send' then
      row = chats.end_of(bufnr)
    elseif argument.range then
      row = argument.range['end'].line
    end
    begin(bufnr, command, argument, row)
  end
end

---@param bufnr integer
---@param first integer
---@param last integer like `first`, counted from 1
---@return { uri: string, range: lsp.Range }
local function lines(bufnr, first, last)
  local text = vim.api.nvim_buf_get_lines(bufnr, last - 1, last, false)[1] or ''
  return {
    uri = vim.uri_from_bufnr(bufnr),
    range = {
      start = { line = first - 1, character = 0 },
      ['end'] = require('thinklsp.diagnostics').position(bufnr, last - 1, #text, encoding_of(bufnr)),
    },
  }
end

--- Run the user command `:Thinklsp`.
---@param call vim.api.keyset.create_user_command.command_args
function M.run(call)
  local name, words = call.args:match('^(%S+)%s*(.-)%s*$')
  local bufnr = vim.api.nvim_get_current_buf()
  local subcommand = SUBCOMMANDS[name]
  if not subcommand then
    local names = table.concat(vim.fn.sort(vim.tbl_keys(SUBCOMMANDS)), ', ')
    local problem = name and ('unknown subcommand %s'):format(name) or 'the subcommand is missing'
    messages.warn(('%s; use one of %s'):format(problem, names))
    return
  end
  subcommand({
    bufnr = bufnr,
    words = words,
    place = call.range > 0 and lines(bufnr, call.line1, call.line2) or nil,
    row = call.range > 0 and call.line2 - 1 or vim.api.nvim_win_get_cursor(0)[1] - 1,
  })
end

--- Return the values that can follow a subcommand.
---@param name string
---@return string[]
local function values(name)
  if name == 'sessions' then
    return require('thinklsp.sessions').OPERATIONS
  elseif name == 'effort' or name == 'thinking' or name == 'model' then
    local found = client.of(vim.api.nvim_get_current_buf())
    local answer = found and client.ask_now(found, 'thinklsp.' .. name, {})
    return answer and answer.choices or {}
  end
  return {}
end

---@param line string the command line up to the cursor
---@return string[]
function M.complete(line)
  local typed = line:match('Thinklsp!?%s+(.*)$') or ''
  local name, value = typed:match('^(%S+)%s+(%S*)$')
  local choices = name and values(name) or (not typed:find('%s') and vim.tbl_keys(SUBCOMMANDS)) or {}
  local begun = name and value or typed
  return vim.fn.sort(vim.tbl_filter(function(word)
    return vim.startswith(word, begun)
  end, choices))
end

return M
