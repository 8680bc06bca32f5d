--- The float with the changes of an edit: a diff, and keys that decide about each change or all changes of a file.
local M = {}

local NAMESPACE = vim.api.nvim_create_namespace('thinklsp_review')

--- The help for the keys, before an edit is written and afterwards.
M.BEFORE = 'y keep · n skip · a keep the rest · q skip the rest · d diff'
M.AFTER = 'y keep · n undo · q close · d diff'

---@class thinklsp.Hunk
---@field uri string
---@field number integer the number of the hunk in its file
---@field title string
---@field diff string[]
---@field reason? string
---@field kept? boolean nil until the user has decided

---@class thinklsp.ReviewLine
---@field text string
---@field group? string the highlight group
---@field hunks? thinklsp.Hunk[] the hunks that the keys act on in this line

--- Return the path of a file as the user sees it.
---@param uri string
---@return string
function M.path_of(uri)
  return vim.fn.fnamemodify(vim.uri_to_fname(uri), ':.')
end

---@param hunks thinklsp.Hunk[]
---@param heading string[]
---@param is_open boolean
---@return thinklsp.ReviewLine[]
local function lines_of(hunks, heading, is_open)
  local lines, file = {}, nil
  for row, text in ipairs(heading) do
    table.insert(lines, { text = text, group = row == 1 and 'Title' or 'Comment' })
  end
  for _, hunk in ipairs(hunks) do
    if hunk.uri ~= file then
      file = hunk.uri
      local of_file = vim.tbl_filter(function(other)
        return other.uri == hunk.uri
      end, hunks)
      table.insert(lines, { text = '' })
      table.insert(lines, { text = M.path_of(file), group = 'Title', hunks = of_file })
    end
    local mark = hunk.kept == nil and '[ ]' or hunk.kept and '[y]' or '[n]'
    local reason = hunk.reason and ' – ' .. hunk.reason or ''
    table.insert(lines, { text = ('  %s %s%s'):format(mark, hunk.title, reason), hunks = { hunk } })
    for _, text in ipairs(is_open and hunk.diff or {}) do
      table.insert(lines, { text = text, group = text:sub(1, 1) == '+' and 'Added' or 'Removed', hunks = { hunk } })
    end
  end
  return lines
end

---@param lines thinklsp.ReviewLine[]
---@return vim.api.keyset.win_config
local function placed(lines)
  local columns, rows, width = vim.o.columns, vim.o.lines, 60
  for _, line in ipairs(lines) do
    width = math.max(width, vim.fn.strdisplaywidth(line.text))
  end
  width = math.max(1, math.min(columns - 4, width))
  local height = math.max(1, math.min(rows - 4, #lines))
  return {
    relative = 'editor',
    width = width,
    height = height,
    row = math.max(0, math.floor((rows - height) / 2) - 1),
    col = math.max(0, math.floor((columns - width) / 2)),
    style = 'minimal',
    border = 'rounded',
    title = ' thinklsp: review ',
  }
end

---@class thinklsp.ReviewFloat
---@field hunks thinklsp.Hunk[]
---@field heading string[]
---@field bufnr integer
---@field winid integer?
---@field is_open boolean true if the diffs are shown
---@field lines thinklsp.ReviewLine[]
local Float = {}
Float.__index = Float

function Float:draw()
  local lines = lines_of(self.hunks, self.heading, self.is_open)
  self.lines = lines
  vim.bo[self.bufnr].modifiable = true
  local texts = vim.tbl_map(function(line)
    return line.text
  end, lines)
  vim.api.nvim_buf_set_lines(self.bufnr, 0, -1, false, texts)
  vim.bo[self.bufnr].modifiable = false
  vim.api.nvim_buf_clear_namespace(self.bufnr, NAMESPACE, 0, -1)
  for row, line in ipairs(lines) do
    if line.group then
      vim.api.nvim_buf_set_extmark(self.bufnr, NAMESPACE, row - 1, 0, { end_col = #line.text, hl_group = line.group })
    end
  end
  if self.winid then
    vim.api.nvim_win_set_config(self.winid, placed(lines))
  end
end

---@return integer
function Float:row()
  return vim.api.nvim_win_get_cursor(self.winid)[1]
end

--- Move the cursor to the next line after `row` that is about one hunk which fits, or else to the first such line.
---@param row integer
---@param fits fun(hunk: thinklsp.Hunk): boolean
---@return boolean
function Float:go_to(row, fits)
  local first, found
  for number, line in ipairs(self.lines) do
    local hunk = line.hunks and #line.hunks == 1 and line.text:sub(1, 3) == '  [' and line.hunks[1]
    if hunk and fits(hunk) then
      first = first or number
      found = found or (number > row and number) or nil
    end
  end
  if first then
    vim.api.nvim_win_set_cursor(self.winid, { found or first, 0 })
  end
  return first ~= nil
end

---@param hunk thinklsp.Hunk
---@return boolean
local function is_undecided(hunk)
  return hunk.kept == nil
end

---@param hunks thinklsp.Hunk[]
---@param kept boolean
function Float:decide(hunks, kept)
  for _, hunk in ipairs(hunks) do
    hunk.kept = kept
  end
  if vim.iter(self.hunks):any(is_undecided) then
    local row = self:row()
    self:draw()
    self:go_to(row, is_undecided)
  else
    self:close()
  end
end

function Float:close()
  if self.winid and vim.api.nvim_win_is_valid(self.winid) then
    vim.api.nvim_win_close(self.winid, true)
  end
end

function Float:toggle_diff()
  local hunks = self.lines[self:row()].hunks
  self.is_open = not self.is_open
  self:draw()
  self:go_to(0, function(hunk)
    return not hunks or hunk == hunks[1]
  end)
end

function Float:set_keys(has_rest)
  local function map(key, run)
    vim.keymap.set('n', key, run, { buffer = self.bufnr, nowait = true })
  end
  for key, kept in pairs({ y = true, n = false }) do
    map(key, function()
      self:decide(self.lines[self:row()].hunks or {}, kept)
    end)
  end
  if has_rest then
    map('a', function()
      self:decide(vim.tbl_filter(is_undecided, self.hunks), true)
    end)
  end
  map('q', function()
    self:close()
  end)
  map('d', function()
    self:toggle_diff()
  end)
end

--- Open the float. `on_end` is called once, when every hunk is decided or the window is closed.
---@param hunks thinklsp.Hunk[]
---@param heading string[] the first line is the title of the edit
---@param keys string `M.BEFORE` or `M.AFTER`
---@param on_end fun()
---@return thinklsp.ReviewFloat
function M.open(hunks, heading, keys, on_end)
  local bufnr = vim.api.nvim_create_buf(false, true)
  vim.bo[bufnr].bufhidden = 'wipe'
  local texts = vim.list_extend(vim.list_slice(heading), { keys })
  local self = setmetatable({ hunks = hunks, heading = texts, bufnr = bufnr, is_open = true }, Float)
  self:draw()
  self:set_keys(keys == M.BEFORE)
  vim.api.nvim_create_autocmd('BufWipeout', { buffer = bufnr, once = true, callback = vim.schedule_wrap(on_end) })
  self.winid = vim.api.nvim_open_win(bufnr, true, placed(self.lines))
  vim.wo[self.winid].wrap = false
  vim.api.nvim_create_autocmd('VimResized', {
    buffer = bufnr,
    callback = function()
      vim.api.nvim_win_set_config(self.winid, placed(self.lines))
    end,
  })
  self:go_to(0, is_undecided)
  return self
end

return M
