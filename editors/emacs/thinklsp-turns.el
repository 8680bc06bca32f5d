;;; thinklsp-turns.el --- Turns of a thinklsp server  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: Apache-2.0

;;; Commentary:

;; The parts that do not depend on the client: settings, positions, and turns
;; that run without blocking Emacs.  A client (`thinklsp-eglot',
;; `thinklsp-lsp-mode') adds a function to `thinklsp-connection-functions',
;; passes `$/progress' to `thinklsp-on-progress' and passes the commands of
;; code actions to `thinklsp-execute'.

;;; Code:

(require 'cl-lib)
(require 'subr-x)
(require 'url-util)

(defgroup thinklsp nil
  "A language server for AI assistance with thinking models."
  :group 'tools
  :prefix "thinklsp-")

(defcustom thinklsp-command '("thinklsp")
  "The program that starts the server, with its arguments."
  :type '(repeat string))

(defvar thinklsp-settings-functions nil
  "Functions that send `thinklsp-settings' to the running servers.")

(defun thinklsp-apply-settings ()
  "Send `thinklsp-settings' to the running servers."
  (interactive)
  (run-hooks 'thinklsp-settings-functions))

(defcustom thinklsp-settings nil
  "An alist of server settings, from names to values.
For example ((effort . \"high\") (thinking.mode . \"off\")); false is
`:json-false'.  Changes apply from the next turn on.  After setting the
variable in Lisp, call `thinklsp-apply-settings'."
  :type '(alist :key-type symbol :value-type sexp)
  :set (lambda (name value)
         (set-default name value)
         (thinklsp-apply-settings)))

(cl-defstruct thinklsp-connection
  "The connection to one server.
REQUEST is called with a method, parameters, a function for the result
and a function for the message of an error; NOTIFY with a method and
parameters.  EXECUTE is called with a command and its argument and waits
for the answer.  ROOT is the root folder, PROCESS is the server process,
and ENCODING is the position encoding (nil means UTF-16)."
  request notify execute root process encoding)

(defvar thinklsp-connection-functions nil
  "Functions that return the `thinklsp-connection' of the current buffer.
They return nil if their client has no thinklsp server in the buffer.")

(defun thinklsp-connection ()
  "Return this buffer's connection; signal a `user-error' if there is none."
  (or (run-hook-with-args-until-success 'thinklsp-connection-functions)
      (user-error "The thinklsp server is not running in this buffer; start eglot or lsp-mode")))

;;; Helpers for all clients

(defun thinklsp-get (object &rest keys)
  "Return the value at the path KEYS, a list of symbols, in OBJECT.
OBJECT is a plist with keyword keys or a hash table with string keys."
  (dolist (key keys object)
    (setq object (cond ((hash-table-p object) (gethash (symbol-name key) object))
                       ((consp object) (plist-get object (intern (format ":%s" key))))))))

(defun thinklsp-with (object key value)
  "Return a copy of OBJECT, as for `thinklsp-get', with VALUE at KEY."
  (if (hash-table-p object)
      (let ((copy (copy-hash-table object)))
        (puthash (symbol-name key) value copy)
        copy)
    (plist-put (copy-sequence object) (intern (format ":%s" key)) value)))

(defun thinklsp-true (value)
  "Return VALUE, or nil if it represents JSON's false or null."
  (unless (memq value '(:json-false :json-null :null)) value))

(defun thinklsp-configuration ()
  "Return `thinklsp-settings' as a nested plist."
  (let (found)
    (pcase-dolist (`(,name . ,value) thinklsp-settings found)
      (setq found (thinklsp--nested found (split-string (symbol-name name) "\\.") value)))))

(defun thinklsp--nested (plist path value)
  "Return PLIST with VALUE at PATH, a list of strings."
  (let ((key (intern (concat ":" (car path)))))
    (plist-put plist key
               (if (cdr path) (thinklsp--nested (plist-get plist key) (cdr path) value) value))))

(defun thinklsp-uri ()
  "Return the URI of the file that this buffer visits."
  (concat "file://" (url-hexify-string
                     (expand-file-name (or buffer-file-name (user-error "This buffer is not visiting a file")))
                     url-path-allowed-chars)))

(defun thinklsp-units (text encoding)
  "Return the number of code units of TEXT in ENCODING.
ENCODING is \"utf-8\", \"utf-16\" or \"utf-32\"; nil means \"utf-16\"."
  (pcase encoding
    ("utf-32" (length text))
    ("utf-8" (string-bytes text))
    (_ (cl-loop for char across text sum (if (> char #xffff) 2 1)))))

(defun thinklsp-position (position encoding)
  "Return the LSP position of POSITION in ENCODING."
  (save-restriction
    (widen)
    (save-excursion
      (goto-char position)
      (list :line (1- (line-number-at-pos))
            :character (thinklsp-units (buffer-substring-no-properties (line-beginning-position) (point))
                                       encoding)))))

(defun thinklsp-range (bounds encoding)
  "Return the LSP range of BOUNDS, a cons of start and end, in ENCODING."
  (list :start (thinklsp-position (car bounds) encoding)
        :end (thinklsp-position (cdr bounds) encoding)))

;;; Turns

(cl-defstruct thinklsp-turn
  "A running turn: its tokens for progress and text, its connection and buffer.
SAID is its current status, and OVERLAY shows its text so far.
STEP-TEXT is the text that was shown when its last step was complete."
  token text-token attached connection buffer (said "thinking") overlay step-text)

(defvar thinklsp--turns nil "The running turns, newest first.")
(defvar thinklsp--count 0)

(defun thinklsp-newest-turn ()
  "Return the newest running turn, or nil.  Remove turns of dead servers."
  (dolist (turn (copy-sequence thinklsp--turns))
    (unless (process-live-p (thinklsp-connection-process (thinklsp-turn-connection turn)))
      (thinklsp--forget turn)))
  (car thinklsp--turns))

(defun thinklsp-ask (command &optional argument)
  "Run COMMAND, which starts no turn, with ARGUMENT and return its answer."
  (funcall (thinklsp-connection-execute (thinklsp-connection)) command (or argument (make-hash-table))))

(defun thinklsp-execute (command argument)
  "Run the COMMAND of a code action or code lens with ARGUMENT."
  (cond ((not (member command '("thinklsp.action" "thinklsp.chat" "thinklsp.send" "thinklsp.compact")))
         (thinklsp-ask command argument))
        ((and (equal (thinklsp-get argument 'name) "edit")
              (not (thinklsp-true (thinklsp-get argument 'instruction))))
         (thinklsp-run command (thinklsp-with argument 'instruction (read-string "Describe the change: "))))
        (t (thinklsp-run command argument))))

(defun thinklsp-run (command argument)
  "Run COMMAND with ARGUMENT as a turn, without waiting, and show its result."
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
  "Send COMMAND with ARGUMENT over CONNECTION, with further FIELDS.
THEN is called with the result, OTHERWISE with the message of an error."
  (funcall (thinklsp-connection-request connection) "workspace/executeCommand"
           `(:command ,command :arguments ,(vector argument) ,@fields)
           then otherwise))

(defun thinklsp--forget (turn)
  "Remove TURN, which has ended."
  (setq thinklsp--turns (delq turn thinklsp--turns))
  (when (thinklsp-turn-overlay turn) (delete-overlay (thinklsp-turn-overlay turn)))
  (force-mode-line-update t))

(defun thinklsp--tell (result shown)
  "Show RESULT, including its text unless the text is SHOWN elsewhere."
  (let* ((text (unless shown (thinklsp-true (thinklsp-get result 'text))))
         (applied (thinklsp-true (thinklsp-get result 'edits 'applied)))
         (lines `(,(pcase (thinklsp-get result 'stopReason)
                     ("end_turn" "done")
                     ((and (pred stringp) reason) (format "ended (%s)" (string-replace "_" " " reason)))
                     (_ "done"))
                  ,@(append (thinklsp-true (thinklsp-get result 'notices)) nil)
                  ,@(when (member applied '("none" "some"))
                      '("Some edits were not applied; use M-x thinklsp-apply"))
                  ,@(when (and text (not (string-match-p "\n" text))) (list text)))))
    (when (and text (string-match-p "\n" text)) (thinklsp-show text))
    (message "thinklsp: %s" (string-join lines "\n"))))

(defun thinklsp-show (text)
  "Show TEXT in a read-only buffer."
  (with-current-buffer (get-buffer-create "*thinklsp: answer*")
    (let ((inhibit-read-only t))
      (erase-buffer)
      (insert text))
    (goto-char (point-min))
    (special-mode)
    (display-buffer (current-buffer))))

(defun thinklsp-on-progress (token value)
  "Show VALUE of a `$/progress' with TOKEN.
Return nil if TOKEN does not belong to a running turn."
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
  "Request the streamed text of TURN once, if the text is to be shown.
The server may not know a new turn yet; then try again at the next report."
  (when (and (thinklsp-turn-text-token turn) (not (thinklsp-turn-attached turn)))
    (setf (thinklsp-turn-attached turn) t)
    (thinklsp--request (thinklsp-turn-connection turn) "thinklsp.sessions"
                       (list :op "attach" :partialResultToken (thinklsp-turn-text-token turn))
                       #'ignore
                       (lambda (_) (setf (thinklsp-turn-attached turn) nil)))))

(defun thinklsp--streamed (turn)
  "Return the text of TURN that is currently shown, or nil."
  (when-let ((overlay (thinklsp-turn-overlay turn)))
    (overlay-get overlay 'after-string)))

(defun thinklsp--stream (turn delta)
  "Show DELTA at the end of the chat document of TURN, in an overlay.
The server writes the complete answer into the document itself."
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
  "Return the mode line text, which is the newest turn's name and status."
  (let ((turn (thinklsp-newest-turn)))
    (concat " thinklsp"
            (when turn (format "[%s]" (string-replace "%" "%%" (thinklsp-turn-said turn)))))))

(provide 'thinklsp-turns)
;;; thinklsp-turns.el ends here
