;;; thinklsp-turns.el --- Turns of a thinklsp server  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: Apache-2.0

;;; Commentary:

;; What does not depend on the client: settings, positions, and turns that run
;; while Emacs goes on.  A client (`thinklsp-eglot', `thinklsp-lsp-mode') adds
;; a function to `thinklsp-connection-functions', hands `$/progress' to
;; `thinklsp-on-progress' and the commands of code actions to `thinklsp-execute'.

;;; Code:

(require 'cl-lib)
(require 'subr-x)
(require 'url-util)

(defgroup thinklsp nil
  "A language server that thinks."
  :group 'tools
  :prefix "thinklsp-")

(defcustom thinklsp-command '("thinklsp")
  "Program and arguments that start the server."
  :type '(repeat string))

(defvar thinklsp-settings-functions nil
  "Functions that tell the running servers of `thinklsp-settings'.")

(defun thinklsp-apply-settings ()
  "Tell the running servers of `thinklsp-settings'."
  (interactive)
  (run-hooks 'thinklsp-settings-functions))

(defcustom thinklsp-settings nil
  "Settings of the server: names to values.
For example ((effort . \"high\") (thinking.mode . \"off\")); false is
`:json-false'.  They count from the next turn on.  After setting them
in Lisp call `thinklsp-apply-settings'."
  :type '(alist :key-type symbol :value-type sexp)
  :set (lambda (name value)
         (set-default name value)
         (thinklsp-apply-settings)))

(cl-defstruct thinklsp-connection
  "One server as its client reaches it.
REQUEST is called with method, parameters, a function for the result
and one for the text of an error; NOTIFY with method and parameters.
EXECUTE is called with a command and its argument and waits for the
answer.  ROOT is the folder, PROCESS the server, ENCODING that of
positions (nil is UTF-16)."
  request notify execute root process encoding)

(defvar thinklsp-connection-functions nil
  "Functions that answer with the `thinklsp-connection' of the current buffer.
They answer nil where their client runs no thinklsp.")

(defun thinklsp-connection ()
  "The connection of this buffer; an error for the user where there is none."
  (or (run-hook-with-args-until-success 'thinklsp-connection-functions)
      (user-error "No thinklsp runs in this buffer: start eglot or lsp-mode here")))

;;; What every client has

(defun thinklsp-get (object &rest keys)
  "The value in OBJECT below KEYS, which are symbols.
OBJECT is a plist with keywords or a hash table with strings."
  (dolist (key keys object)
    (setq object (cond ((hash-table-p object) (gethash (symbol-name key) object))
                       ((consp object) (plist-get object (intern (format ":%s" key))))))))

(defun thinklsp-with (object key value)
  "A copy of OBJECT, as for `thinklsp-get', with VALUE at KEY."
  (if (hash-table-p object)
      (let ((copy (copy-hash-table object)))
        (puthash (symbol-name key) value copy)
        copy)
    (plist-put (copy-sequence object) (intern (format ":%s" key)) value)))

(defun thinklsp-true (value)
  "VALUE as Lisp has it: nil for what clients make of JSON's false and null."
  (unless (memq value '(:json-false :json-null :null)) value))

(defun thinklsp-configuration ()
  "`thinklsp-settings' as a nested plist."
  (let (found)
    (pcase-dolist (`(,name . ,value) thinklsp-settings found)
      (setq found (thinklsp--nested found (split-string (symbol-name name) "\\.") value)))))

(defun thinklsp--nested (plist path value)
  "PLIST with VALUE below PATH, a list of strings."
  (let ((key (intern (concat ":" (car path)))))
    (plist-put plist key
               (if (cdr path) (thinklsp--nested (plist-get plist key) (cdr path) value) value))))

(defun thinklsp-uri ()
  "The URI of the file that this buffer visits."
  (concat "file://" (url-hexify-string
                     (expand-file-name (or buffer-file-name (user-error "This buffer visits no file")))
                     url-path-allowed-chars)))

(defun thinklsp-units (text encoding)
  "How many units TEXT has in ENCODING, utf-8, utf-16 or utf-32 by name."
  (pcase encoding
    ("utf-32" (length text))
    ("utf-8" (string-bytes text))
    (_ (cl-loop for char across text sum (if (> char #xffff) 2 1)))))

(defun thinklsp-position (position encoding)
  "POSITION as LSP has it, counted in ENCODING."
  (save-restriction
    (widen)
    (save-excursion
      (goto-char position)
      (list :line (1- (line-number-at-pos))
            :character (thinklsp-units (buffer-substring-no-properties (line-beginning-position) (point))
                                       encoding)))))

(defun thinklsp-range (bounds encoding)
  "The range of BOUNDS, begin and end, counted in ENCODING."
  (list :start (thinklsp-position (car bounds) encoding)
        :end (thinklsp-position (cdr bounds) encoding)))

;;; Turns

(cl-defstruct thinklsp-turn
  "One that runs: its tokens for progress and text, where it was asked for.
SAID is what it does just now, OVERLAY shows its text so far.
STEP-TEXT is the text that was shown when its last step was complete."
  token text-token attached connection buffer (said "thinking") overlay step-text)

(defvar thinklsp--turns nil "Turns that run, newest first.")
(defvar thinklsp--count 0)

(defun thinklsp-newest-turn ()
  "The newest running turn, or nil; those of a dead server are forgotten."
  (dolist (turn (copy-sequence thinklsp--turns))
    (unless (process-live-p (thinklsp-connection-process (thinklsp-turn-connection turn)))
      (thinklsp--forget turn)))
  (car thinklsp--turns))

(defun thinklsp-ask (command &optional argument)
  "The answer to COMMAND with ARGUMENT, for commands without a model."
  (funcall (thinklsp-connection-execute (thinklsp-connection)) command (or argument (make-hash-table))))

(defun thinklsp-execute (command argument)
  "Run COMMAND with ARGUMENT of a code action or a lens."
  (cond ((not (member command '("thinklsp.action" "thinklsp.chat" "thinklsp.send" "thinklsp.compact")))
         (thinklsp-ask command argument))
        ((and (equal (thinklsp-get argument 'name) "edit")
              (not (thinklsp-true (thinklsp-get argument 'instruction))))
         (thinklsp-run command (thinklsp-with argument 'instruction (read-string "Change it how? "))))
        (t (thinklsp-run command argument))))

(defun thinklsp-run (command argument)
  "Run COMMAND with ARGUMENT as a turn and say what came of it; never wait."
  (let* ((connection (thinklsp-connection))
         (token (format "emacs-%d-%d" (emacs-pid) (cl-incf thinklsp--count)))
         (turn (make-thinklsp-turn :token token :connection connection :buffer (current-buffer)
                                   :text-token (when (equal command "thinklsp.send") (concat token "-text")))))
    (push turn thinklsp--turns)
    (force-mode-line-update t)
    (thinklsp--request connection command argument
                       (lambda (result)
                         (thinklsp--forget turn)
                         (thinklsp--tell result (thinklsp-turn-text-token turn)))
                       (lambda (sentence)
                         (thinklsp--forget turn)
                         (message "thinklsp: %s" sentence))
                       :workDoneToken token)))

(defun thinklsp--request (connection command argument then otherwise &rest fields)
  "Send COMMAND with ARGUMENT and FIELDS of the request over CONNECTION.
THEN gets the result, OTHERWISE the text of an error."
  (funcall (thinklsp-connection-request connection) "workspace/executeCommand"
           `(:command ,command :arguments ,(vector argument) ,@fields)
           then otherwise))

(defun thinklsp--forget (turn)
  "TURN does not run any more."
  (setq thinklsp--turns (delq turn thinklsp--turns))
  (when (thinklsp-turn-overlay turn) (delete-overlay (thinklsp-turn-overlay turn)))
  (force-mode-line-update t))

(defun thinklsp--tell (result shown)
  "Say what RESULT is; its text too unless that is SHOWN elsewhere."
  (let* ((text (unless shown (thinklsp-true (thinklsp-get result 'text))))
         (applied (thinklsp-true (thinklsp-get result 'edits 'applied)))
         (lines `(,(pcase (thinklsp-get result 'stopReason)
                     ("end_turn" "done")
                     ((and (pred stringp) reason) (format "ended (%s)" (string-replace "_" " " reason)))
                     (_ "done"))
                  ,@(append (thinklsp-true (thinklsp-get result 'notices)) nil)
                  ,@(when (member applied '("none" "some"))
                      '("Not everything is applied: M-x thinklsp-apply brings it in"))
                  ,@(when (and text (not (string-match-p "\n" text))) (list text)))))
    (when (and text (string-match-p "\n" text)) (thinklsp-show text))
    (message "thinklsp: %s" (string-join lines "\n"))))

(defun thinklsp-show (text)
  "Show TEXT in a buffer to read."
  (with-current-buffer (get-buffer-create "*thinklsp: answer*")
    (let ((inhibit-read-only t))
      (erase-buffer)
      (insert text))
    (goto-char (point-min))
    (special-mode)
    (display-buffer (current-buffer))))

(defun thinklsp-on-progress (token value)
  "Show VALUE of a `$/progress' with TOKEN; nil if it is of no turn of ours."
  (when-let ((turn (cl-find-if (lambda (turn)
                                 (member token (list (thinklsp-turn-token turn) (thinklsp-turn-text-token turn))))
                               thinklsp--turns)))
    (pcase (thinklsp-get value 'kind)
      ("report" (thinklsp--attach turn)
                (when-let ((said (thinklsp-true (thinklsp-get value 'message))))
                  (setf (thinklsp-turn-said turn) said)))
      ("text" (thinklsp--stream turn (thinklsp-get value 'delta)))
      ("usage" (setf (thinklsp-turn-step-text turn) (thinklsp--streamed turn)))
      ("restart" (when-let ((overlay (thinklsp-turn-overlay turn)))
                   (overlay-put overlay 'after-string (thinklsp-turn-step-text turn)))))
    (force-mode-line-update t)
    t))

(defun thinklsp--attach (turn)
  "Ask once for the text of TURN as it comes, if it is to be shown.
A turn that has begun may not be known yet: then the next report asks again."
  (when (and (thinklsp-turn-text-token turn) (not (thinklsp-turn-attached turn)))
    (setf (thinklsp-turn-attached turn) t)
    (thinklsp--request (thinklsp-turn-connection turn) "thinklsp.sessions"
                       (list :op "attach" :partialResultToken (thinklsp-turn-text-token turn))
                       #'ignore
                       (lambda (_) (setf (thinklsp-turn-attached turn) nil)))))

(defun thinklsp--streamed (turn)
  "The text of TURN that is shown now, nil before the first."
  (when-let ((overlay (thinklsp-turn-overlay turn)))
    (overlay-get overlay 'after-string)))

(defun thinklsp--stream (turn delta)
  "Show DELTA at the end of the chat document of TURN.
Nothing is written: the one edit of the server brings the answer."
  (when (buffer-live-p (thinklsp-turn-buffer turn))
    (with-current-buffer (thinklsp-turn-buffer turn)
      (save-restriction
        (widen)
        (let ((overlay (or (thinklsp-turn-overlay turn)
                           (setf (thinklsp-turn-overlay turn) (make-overlay (point-max) (point-max) nil t t)))))
          (move-overlay overlay (point-max) (point-max))
          (overlay-put overlay 'after-string
                       (concat (or (overlay-get overlay 'after-string) "\n\n")
                               (propertize delta 'face 'shadow))))))))

(defun thinklsp-status ()
  "For the mode line: the name, and what the newest turn is doing."
  (let ((turn (thinklsp-newest-turn)))
    (concat " thinklsp"
            (when turn (format "[%s]" (string-replace "%" "%%" (thinklsp-turn-said turn)))))))

(provide 'thinklsp-turns)
;;; thinklsp-turns.el ends here
