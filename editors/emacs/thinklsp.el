;;; thinklsp.el --- A language server that thinks  -*- lexical-binding: t; -*-

;; Author: The thinklsp authors
;; Version: 0.1.0
;; Package-Requires: ((emacs "28.1"))
;; Keywords: tools, languages
;; SPDX-License-Identifier: Apache-2.0

;;; Commentary:

;; Commands, a mode line that shows the thinking, and chat documents for the thinklsp language server, over lsp-mode
;; (beside your other servers) or eglot (in the place of one).  Both are loaded only when you use them:
;;
;;   (require 'thinklsp)   ; lsp-mode starts thinklsp everywhere, beside the language's own server
;;   (thinklsp-eglot-add 'python-mode)   ; eglot: thinklsp is the server of these modes
;;
;; `thinklsp-mode' comes on by itself where the server runs; its keys are below C-c ".

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

(defcustom thinklsp-settings nil
  "Settings of the server, names to values, such as ((effort . \"high\") (thinking.mode . \"manual\")).
They count from the next turn on.  After setting it in Lisp call `thinklsp-apply-settings'."
  :type '(alist :key-type symbol :value-type sexp)
  :set (lambda (name value)
         (set-default name value)
         (when (fboundp 'thinklsp-apply-settings) (thinklsp-apply-settings))))

(defvar thinklsp-connection-functions nil
  "Functions without arguments that answer with the `thinklsp-connection' of the current buffer, or nil.")

(defvar thinklsp-settings-functions nil
  "Functions without arguments that tell the running servers of their kind of `thinklsp-settings'.")

(cl-defstruct thinklsp-connection
  "REQUEST takes method, parameters, a function for the result and one for an error's text; NOTIFY method and parameters.
EXECUTE takes a command and its argument and waits for the answer, which may be a plist or a hash table."
  request notify execute root)

(cl-defstruct thinklsp-turn
  "One that runs for this Emacs: where it was asked for, what it is doing, and an overlay with the text so far."
  token stream connection buffer said overlay)

(defvar thinklsp--turns nil "Turns that run, newest first.")
(defvar thinklsp--count 0)

;;; What every client has

(defun thinklsp--get (object &rest keys)
  "What OBJECT, a plist with keywords or a hash table with strings, holds below KEYS, which are symbols."
  (dolist (key keys object)
    (setq object (cond ((hash-table-p object) (gethash (symbol-name key) object))
                       ((consp object) (plist-get object (intern (format ":%s" key))))))))

(defun thinklsp--connection ()
  "The server's connection of this buffer, else an error for the user."
  (or (run-hook-with-args-until-success 'thinklsp-connection-functions)
      (user-error "No thinklsp server runs for this buffer: start lsp-mode or eglot here")))

(defun thinklsp--uri (&optional file)
  "The URI of FILE, default the one that this buffer visits."
  (let ((name (or file buffer-file-name (user-error "This buffer visits no file"))))
    (concat "file://" (url-hexify-string (expand-file-name name) (cons ?/ (append url-unreserved-chars nil))))))

(defun thinklsp--position (position)
  "POSITION as LSP counts it: lines from 0, UTF-16 code units."
  (save-excursion
    (save-restriction
      (widen)
      (goto-char position)
      (list :line (1- (line-number-at-pos nil t))
            :character (let ((units 0))
                         (dolist (char (append (buffer-substring-no-properties (line-beginning-position) (point)) nil) units)
                           (cl-incf units (if (> char #xffff) 2 1))))))))

(defun thinklsp--range ()
  "The region, else the line."
  (if (use-region-p)
      (list :start (thinklsp--position (region-beginning)) :end (thinklsp--position (region-end)))
    (list :start (thinklsp--position (line-beginning-position)) :end (thinklsp--position (line-end-position)))))

(defun thinklsp-configuration ()
  "`thinklsp-settings' as a nested plist."
  (let (found)
    (pcase-dolist (`(,name . ,value) thinklsp-settings found)
      (setq found (thinklsp--put found (split-string (format "%s" name) "\\.") value)))))

(defun thinklsp--put (plist path value)
  "PLIST with VALUE below PATH, a list of strings."
  (let ((key (intern (concat ":" (car path)))))
    (plist-put plist key (if (cdr path) (thinklsp--put (plist-get plist key) (cdr path) value) value))))

(defun thinklsp-apply-settings ()
  "Tell the running servers of `thinklsp-settings'."
  (interactive)
  (run-hooks 'thinklsp-settings-functions))

;;; Turns

(defun thinklsp--run (command argument &optional stream then)
  "Run COMMAND with ARGUMENT as a turn and show what it does; STREAM: its text in the chat document as it comes.
THEN is called with the result, in the buffer where the turn was asked for."
  (let* ((connection (thinklsp--connection))
         (turn (make-thinklsp-turn :token (format "emacs-%d-%d" (emacs-pid) (cl-incf thinklsp--count))
                                   :connection connection :buffer (current-buffer) :said "")))
    (when stream (setf (thinklsp-turn-stream turn) (concat (thinklsp-turn-token turn) "-text")))
    (push turn thinklsp--turns)
    (funcall (thinklsp-connection-request connection) "workspace/executeCommand"
             (list :command command :arguments (vector argument) :workDoneToken (thinklsp-turn-token turn))
             (lambda (result)
               (thinklsp--ended turn)
               (when (buffer-live-p (thinklsp-turn-buffer turn))
                 (with-current-buffer (thinklsp-turn-buffer turn)
                   (thinklsp--tell result (not stream))
                   (when then (funcall then result)))))
             (lambda (sentence)
               (thinklsp--ended turn)
               (message "thinklsp: %s" sentence)))))

(defun thinklsp--ended (turn)
  "Forget TURN and its overlay."
  (setq thinklsp--turns (delq turn thinklsp--turns))
  (when (thinklsp-turn-overlay turn) (delete-overlay (thinklsp-turn-overlay turn)))
  (force-mode-line-update t))

(defun thinklsp--tell (result with-text)
  "Say what came of a turn, WITH-TEXT unless a chat document shows it."
  (let ((text (and with-text (thinklsp--get result 'text)))
        (applied (thinklsp--get result 'edits 'applied))
        (notices (append (thinklsp--get result 'notices) nil)))
    (message "thinklsp: %s"
             (string-join
              (delq nil `(,(pcase (thinklsp--get result 'stopReason)
                             ("end_turn" (if (member applied '(nil :null :json-null)) "done" (format "done, %s applied" applied)))
                             (reason (format "ended by %s" reason)))
                          ,(and (stringp text) (not (string-empty-p text)) text)
                          ,@notices
                          ,(and (member applied '("none" "some")) "M-x thinklsp-apply brings in what was held back")))
              "\n"))))

(defun thinklsp-on-progress (token value)
  "Show VALUE of a `$/progress' with TOKEN, where it is of a turn of ours.  Answers nil where it is not."
  (when-let ((turn (cl-find-if (lambda (turn) (member token (list (thinklsp-turn-token turn) (thinklsp-turn-stream turn))))
                               thinklsp--turns)))
    (pcase (thinklsp--get value 'kind)
      ("begin" (when (thinklsp-turn-stream turn) (thinklsp--attach turn)))
      ("report" (let ((said (thinklsp--get value 'message)))
                  (when (stringp said) (setf (thinklsp-turn-said turn) said))))
      ("text" (thinklsp--stream turn (thinklsp--get value 'delta))))
    (force-mode-line-update t)
    turn))

(defun thinklsp--attach (turn)
  "Ask for the text of TURN, which has begun, as it comes."
  (funcall (thinklsp-connection-request (thinklsp-turn-connection turn)) "workspace/executeCommand"
           (list :command "thinklsp.sessions"
                 :arguments (vector (list :op "attach" :partialResultToken (thinklsp-turn-stream turn))))
           #'ignore #'ignore))

(defun thinklsp--stream (turn delta)
  "Show DELTA below the chat document of TURN.  Nothing is written: the server's one edit brings the answer."
  (when (buffer-live-p (thinklsp-turn-buffer turn))
    (with-current-buffer (thinklsp-turn-buffer turn)
      (unless (thinklsp-turn-overlay turn)
        (setf (thinklsp-turn-overlay turn) (make-overlay (point-max) (point-max) nil t t)))
      (let ((overlay (thinklsp-turn-overlay turn)))
        (move-overlay overlay (point-max) (point-max))
        (overlay-put overlay 'after-string
                     (concat (or (overlay-get overlay 'after-string) (propertize "\n\n" 'cursor t))
                             (propertize delta 'face 'shadow)))))))

(defun thinklsp-status ()
  "What the newest turn is doing, or nil."
  (when thinklsp--turns
    (let ((said (thinklsp-turn-said (car thinklsp--turns))))
      (if (string-empty-p said) "thinking" said))))

;;; Commands

(defun thinklsp--ask (command &optional argument)
  "The server's answer to COMMAND, which runs no model."
  (funcall (thinklsp-connection-execute (thinklsp--connection)) command (or argument (make-hash-table))))

(defun thinklsp--act (name &rest argument)
  "Run the action NAME on region or line, with the fields of the plist ARGUMENT."
  (thinklsp--run "thinklsp.action" `(:name ,name :uri ,(thinklsp--uri) :range ,(thinklsp--range) ,@argument)))

(defun thinklsp--problems ()
  "Diagnostics of region or line by any backend of Flymake or Flycheck, as LSP has them."
  (let ((begin (if (use-region-p) (region-beginning) (line-beginning-position)))
        (end (if (use-region-p) (region-end) (line-end-position))))
    (vconcat
     (when (bound-and-true-p flymake-mode)
       (mapcar (lambda (problem)
                 (list :message (flymake-diagnostic-text problem)
                       :range (list :start (thinklsp--position (flymake-diagnostic-beg problem))
                                    :end (thinklsp--position (flymake-diagnostic-end problem)))))
               (flymake-diagnostics begin end)))
     (when (bound-and-true-p flycheck-mode)
       (cl-loop for problem in (flycheck-overlay-errors-in begin end)
                for (from . to) = (flycheck-error-region-for-mode problem major-mode)
                collect (list :message (flycheck-error-message problem)
                              :range (list :start (thinklsp--position from) :end (thinklsp--position to))))))))

;;;###autoload
(defun thinklsp-fix ()
  "Fix the problem that Flymake or Flycheck shows on this line or in the region, whichever program found it."
  (interactive)
  (let ((problems (thinklsp--problems)))
    (when (zerop (length problems)) (user-error "No problem is shown on this line"))
    (thinklsp--act "fix" :diagnostics problems)))

;;;###autoload
(defun thinklsp-edit (instruction)
  "Change the region, or the line, as INSTRUCTION says."
  (interactive "sChange it how? ")
  (thinklsp--act "edit" :instruction instruction))

;;;###autoload
(defun thinklsp-explain ()
  "Explain the region, or the line; the answer opens in a chat document where that can be made."
  (interactive)
  (thinklsp--act "explain"))

;;;###autoload
(defun thinklsp-chat ()
  "Open a new chat document, with a reference to the region if there is one."
  (interactive)
  (let* ((root (thinklsp-connection-root (thinklsp--connection)))
         (folder (expand-file-name ".thinklsp/chat/" root))
         (reference (when (use-region-p)
                      (format "@%s:%d-%d\n" (file-relative-name buffer-file-name root)
                              (line-number-at-pos (region-beginning)) (line-number-at-pos (region-end))))))
    (make-directory folder t)
    (unless (file-exists-p (expand-file-name ".gitignore" folder))
      (write-region "*\n" nil (expand-file-name ".gitignore" folder) nil 'quiet))
    (find-file (make-temp-name (expand-file-name (format-time-string "%Y%m%d-") folder)))
    (set-visited-file-name (concat buffer-file-name ".chat.md") t)
    (thinklsp-chat-mode)
    (insert "## You\n\n" (or reference ""))
    (save-buffer)
    (run-hooks 'thinklsp-chat-opened-hook)))

(defvar thinklsp-chat-opened-hook nil "Run in a new chat document; the clients connect it here.")

(defun thinklsp-send ()
  "Send what stands below the last heading `## You' of this chat document."
  (interactive)
  (thinklsp--run "thinklsp.send" (list :uri (thinklsp--uri)) t))

(defun thinklsp-stop ()
  "Stop the newest turn."
  (interactive)
  (if-let ((turn (car thinklsp--turns)))
      (funcall (thinklsp-connection-notify (thinklsp-turn-connection turn)) "window/workDoneProgress/cancel"
               (list :token (thinklsp-turn-token turn)))
    (thinklsp--ask "thinklsp.cancel")))

(defun thinklsp-undo ()
  "Take the newest turn that wrote back, in all its files; what was typed since stays."
  (interactive)
  (thinklsp--tell-files (thinklsp--ask "thinklsp.undo")))

(defun thinklsp-apply ()
  "Bring in the edit that the newest turn held back."
  (interactive)
  (thinklsp--tell-files (thinklsp--ask "thinklsp.apply")))

(defun thinklsp--tell-files (answer)
  "Say how many files ANSWER is about."
  (message "thinklsp: %s in %d files" (if (eq (thinklsp--get answer 'applied) t) "done" (thinklsp--get answer 'applied))
           (length (thinklsp--get answer 'files))))

(defun thinklsp--choose (command)
  "Choose a value for COMMAND among those that the server knows."
  (let* ((now (thinklsp--ask command))
         (choices (append (thinklsp--get now 'choices) nil))
         (value (completing-read (format "%s (now %s): " command (thinklsp--get now 'effective)) choices))
         (notice (thinklsp--get (thinklsp--ask command (list :value value)) 'notice)))
    (message "thinklsp: %s" (if (stringp notice) notice value))))

(defun thinklsp-effort () "Choose the effort." (interactive) (thinklsp--choose "thinklsp.effort"))
(defun thinklsp-thinking () "Choose how it thinks." (interactive) (thinklsp--choose "thinklsp.thinking"))
(defun thinklsp-model () "Choose the model." (interactive) (thinklsp--choose "thinklsp.model"))

(defun thinklsp-sessions ()
  "Choose a session of this folder and read it."
  (interactive)
  (let* ((rows (append (thinklsp--ask "thinklsp.sessions") nil))
         (names (mapcar (lambda (row) (cons (format "%s  %s" (substring (thinklsp--get row 'sessionId) 0 8)
                                                    (thinklsp--get row 'title))
                                            (thinklsp--get row 'sessionId)))
                        rows))
         (chosen (completing-read "Session: " names nil t)))
    (thinklsp--show (thinklsp--get (thinklsp--ask "thinklsp.sessions"
                                                  (list :op "show" :sessionId (cdr (assoc chosen names))))
                                   'text))))

(defun thinklsp-usage ()
  "Show what the newest session has cost."
  (interactive)
  (let ((total (thinklsp--get (thinklsp--ask "thinklsp.usage") 'total)))
    (message "thinklsp: %s tokens in (%s from the cache), %s out, %s USD" (thinklsp--get total 'inputTokens)
             (thinklsp--get total 'cacheReadTokens) (thinklsp--get total 'outputTokens) (thinklsp--get total 'costUsd))))

(defun thinklsp-doctor ()
  "Show what would be used, and what is missing."
  (interactive)
  (thinklsp--show (shell-command-to-string (mapconcat #'shell-quote-argument (append thinklsp-command '("doctor")) " "))))

(defun thinklsp--show (text)
  "Show TEXT in a buffer to read."
  (with-current-buffer (get-buffer-create "*thinklsp*")
    (let ((inhibit-read-only t))
      (erase-buffer)
      (insert text))
    (goto-char (point-min))
    (special-mode)
    (display-buffer (current-buffer))))

;;; Modes

(defvar thinklsp-command-map
  (let ((map (make-sparse-keymap)))
    (pcase-dolist (`(,key . ,command)
                   '(("f" . thinklsp-fix) ("e" . thinklsp-edit) ("x" . thinklsp-explain) ("c" . thinklsp-chat)
                     ("s" . thinklsp-send) ("k" . thinklsp-stop) ("u" . thinklsp-undo) ("a" . thinklsp-apply)
                     ("t" . thinklsp-effort) ("m" . thinklsp-model) ("l" . thinklsp-sessions) ("$" . thinklsp-usage)))
      (define-key map key command))
    map)
  "Keys of `thinklsp-mode' below its prefix.")

(defvar thinklsp-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "C-c \"") thinklsp-command-map)
    map))

;;;###autoload
(define-minor-mode thinklsp-mode
  "Commands of thinklsp, and its thinking in the mode line."
  :lighter (:eval (concat " 🟊" (when-let ((status (thinklsp-status))) (format "[%s]" status)))))

;;;###autoload
(define-derived-mode thinklsp-chat-mode text-mode "Chat"
  "A conversation: write below `## You', then \\[thinklsp-send]."
  (setq font-lock-defaults '((("^## \\(You\\|thinklsp\\)$" . font-lock-keyword-face)
                              ("^<!-- .* -->$" . font-lock-comment-face)
                              ("@[^ \n]+" . font-lock-constant-face))
                             t))
  (thinklsp-mode 1))

(define-key thinklsp-chat-mode-map (kbd "C-c C-c") #'thinklsp-send)
(define-key thinklsp-chat-mode-map (kbd "C-c C-k") #'thinklsp-stop)

;;;###autoload
(add-to-list 'auto-mode-alist '("\\.chat\\.md\\'" . thinklsp-chat-mode))

(with-eval-after-load 'lsp-mode (require 'thinklsp-lsp-mode))
(with-eval-after-load 'eglot (require 'thinklsp-eglot))
;;;###autoload
(autoload 'thinklsp-eglot-add "thinklsp-eglot" "Make thinklsp the server of MODES." nil)

(provide 'thinklsp)
;;; thinklsp.el ends here
