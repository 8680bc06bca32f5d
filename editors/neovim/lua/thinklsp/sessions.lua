--- The session picker: it lets the user select a session of the folder and an operation.
local chats = require('thinklsp.chats')
local client = require('thinklsp.client')
local messages = require('thinklsp.messages')

local M = {}

M.OPERATIONS = { 'delete', 'fork', 'restore', 'resume', 'show' }

---@alias thinklsp.Ask fun(bufnr: integer, command: string, argument: table, on_answer: fun(answer: any))

---@param bufnr integer
---@param session string
local function resume(bufnr, session)
  local found = client.of(bufnr)
  chats.open(found and found.root_dir or vim.fn.getcwd(), session)
end

--- Let the user select an archive, and restore the conversation of the session from it.
---@param bufnr integer
---@param session string
---@param ask thinklsp.Ask
local function restore(bufnr, session, ask)
  ask(bufnr, 'thinklsp.sessions', { op = 'show', sessionId = session }, function(shown)
    if #shown.archives == 0 then
      messages.say('this session has no archive, so there is no compaction or repair to undo')
      return
    end
    vim.ui.select(vim.fn.reverse(shown.archives), {
      prompt = 'Archive',
      format_item = function(archive)
        return ('%s  %d messages  %s'):format(archive.made:sub(1, 16), archive.messages, archive.note)
      end,
    }, function(archive)
      if archive then
        local argument = { op = 'restore', sessionId = session, archiveId = archive.archiveId }
        ask(bufnr, 'thinklsp.sessions', argument, function(answer)
          local counts = answer.messages
          messages.say(('restored the archive; %d messages became %d'):format(counts.before, counts.after))
        end)
      end
    end)
  end)
end

---@param bufnr integer
---@param operation string
---@param session { sessionId: string, title: string }
---@param ask thinklsp.Ask
---@param show fun(text: string)
local function perform(bufnr, operation, session, ask, show)
  local argument = { op = operation, sessionId = session.sessionId }
  if operation == 'resume' then
    resume(bufnr, session.sessionId)
  elseif operation == 'show' then
    ask(bufnr, 'thinklsp.sessions', argument, function(answer)
      show(answer.text)
    end)
  elseif operation == 'restore' then
    restore(bufnr, session.sessionId, ask)
  elseif operation == 'fork' then
    ask(bufnr, 'thinklsp.sessions', argument, function(answer)
      resume(bufnr, answer.sessionId)
    end)
  elseif operation == 'delete' then
    vim.ui.select(
      { 'Keep it', 'Delete it' },
      { prompt = ('Delete "%s" permanently?'):format(session.title) },
      function(word)
        if word == 'Delete it' then
          ask(bufnr, 'thinklsp.sessions', argument, function(answer)
            messages.say('deleted ' .. answer.title)
          end)
        end
      end
    )
  end
end

--- Let the user select a session, and an operation unless one is given.
---@param bufnr integer
---@param operation string?
---@param ask thinklsp.Ask
---@param show fun(text: string)
function M.pick(bufnr, operation, ask, show)
  if operation and not vim.list_contains(M.OPERATIONS, operation) then
    local names = table.concat(M.OPERATIONS, ', ')
    messages.warn(('unknown operation %s; use one of %s'):format(operation, names))
    return
  end
  ask(bufnr, 'thinklsp.sessions', { op = 'list' }, function(list)
    if #list == 0 then
      messages.say('this folder has no session yet')
      return
    end
    vim.ui.select(list, {
      prompt = 'Session',
      format_item = function(session)
        return ('%s  %s%s'):format(session.updated:sub(1, 16), session.title, session.busy and '  (busy)' or '')
      end,
    }, function(session)
      if session and operation then
        perform(bufnr, operation, session, ask, show)
      elseif session then
        vim.ui.select(M.OPERATIONS, { prompt = session.title }, function(chosen)
          if chosen then
            perform(bufnr, chosen, session, ask, show)
          end
        end)
      end
    end)
  end)
end

return M
