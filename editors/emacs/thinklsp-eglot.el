;;; thinklsp-eglot.el --- thinklsp over eglot  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: Apache-2.0

;;; Commentary:

;; Eglot runs one server for a buffer, so thinklsp takes the place of another
;; in the modes that are given to it.  Turns go out without a deadline and
;; with a token of ours: Emacs never waits, and the thinking is shown even by
;; eglot 1.9, which announces no progress.

;;; Code:

(require 'eglot)
(require 'thinklsp-turns)

(declare-function thinklsp-mode "thinklsp")

(defclass thinklsp-eglot-server (eglot-lsp-server) ()
  "A thinklsp server that eglot runs.")

(put 'thinklsp-chat-mode 'eglot-language-id "markdown")

;;;###autoload
(defun thinklsp-eglot-add (&rest modes)
  "Make thinklsp the server of MODES and of chat documents."
  (add-to-list 'eglot-server-programs
               (cons `(,@modes thinklsp-chat-mode)
                     (lambda (&rest _) (cons 'thinklsp-eglot-server thinklsp-command))))
  (add-hook 'thinklsp-chat-mode-hook #'eglot-ensure))

(defun thinklsp-eglot--server ()
  "The server of this buffer if it is one of ours."
  (let ((server (eglot-current-server)))
    (when (cl-typep server 'thinklsp-eglot-server) server)))

(defun thinklsp-eglot--flush ()
  "Tell the server of this buffer, if there is one, what was just typed."
  (when (eglot-managed-p) (eglot--signal-textDocument/didChange)))

(defun thinklsp-eglot--connection ()
  "The connection of this buffer, or nil."
  (when-let ((server (thinklsp-eglot--server)))
    (make-thinklsp-connection
     :root (expand-file-name (project-root (eglot--project server)))
     :process (jsonrpc--process server)
     :encoding (plist-get (eglot--capabilities server) :positionEncoding)
     :request (lambda (method params then otherwise)
                (thinklsp-eglot--flush)
                (jsonrpc-async-request
                 server (intern (concat ":" method)) params :timeout nil :success-fn then
                 :error-fn (jsonrpc-lambda (&key message &allow-other-keys) (funcall otherwise message))))
     :notify (lambda (method params) (jsonrpc-notify server (intern (concat ":" method)) params))
     :execute (lambda (command argument)
                (thinklsp-eglot--flush)
                ;; Eglot may ask about an edit meanwhile.
                (jsonrpc-request server :workspace/executeCommand
                                 (list :command command :arguments (vector argument)) :timeout 120)))))

(add-hook 'thinklsp-connection-functions #'thinklsp-eglot--connection)

(cl-defmethod eglot-handle-notification ((_server thinklsp-eglot-server) (_method (eql '$/progress))
                                         &key token value &allow-other-keys)
  "Show VALUE where TOKEN is of a turn of ours; eglot sees to the others."
  (unless (thinklsp-on-progress token value)
    (cl-call-next-method)))

;; Newer eglot does this by itself, and the variable has another meaning there.
(unless (boundp 'eglot-confirm-server-edits)
  (cl-defmethod eglot-handle-request ((_server thinklsp-eglot-server) (_method (eql 'workspace/applyEdit))
                                      &key &allow-other-keys)
    "Apply what the user asked for without a question.
Eglot still asks where a file is not open."
    (with-suppressed-warnings ((obsolete eglot-confirm-server-initiated-edits))
      (let ((eglot-confirm-server-initiated-edits nil))
        (cl-call-next-method)))))

(cl-defmethod eglot-handle-request :after ((server thinklsp-eglot-server) (_method (eql 'workspace/applyEdit))
                                           &key &allow-other-keys)
  "Tell SERVER what its edit has changed before it gets the answer.
Eglot's timer does not run while `thinklsp-undo' waits, and the server
takes an edit as made only when it sees the new text."
  (dolist (buffer (eglot--managed-buffers server))
    (when (buffer-live-p buffer)
      (with-current-buffer buffer (thinklsp-eglot--flush)))))

(if (fboundp 'eglot-execute)
    (cl-defmethod eglot-execute ((_server thinklsp-eglot-server) action)
      "Run ACTION without a deadline."
      (let ((command (plist-get action :command)))
        (cond ((or (null command) (plist-get action :edit)) (cl-call-next-method))
              ((stringp command) (thinklsp-eglot--run command (plist-get action :arguments)))
              (t (thinklsp-eglot--run (plist-get command :command) (plist-get command :arguments))))))
  (with-suppressed-warnings ((obsolete eglot-execute-command))
    (cl-defmethod eglot-execute-command ((_server thinklsp-eglot-server) command arguments)
      "Run COMMAND of a code action with the vector ARGUMENTS, without a deadline."
      (thinklsp-eglot--run command arguments))))

(defun thinklsp-eglot--run (command arguments)
  "Run COMMAND with the vector ARGUMENTS."
  (thinklsp-execute (format "%s" command) (if (seq-empty-p arguments) (make-hash-table) (aref arguments 0))))

;;; Settings

(cl-defmethod eglot-handle-request ((_server thinklsp-eglot-server) (_method (eql 'workspace/configuration))
                                    &key items)
  "Answer each of ITEMS with `thinklsp-settings'.
Where none are set `eglot-workspace-configuration' holds."
  (if thinklsp-settings
      (vconcat (mapcar (lambda (_) (thinklsp-configuration)) items))
    (cl-call-next-method)))

(defun thinklsp-eglot--tell (server)
  "Tell SERVER, if it is one of ours, of `thinklsp-settings'."
  (when (cl-typep server 'thinklsp-eglot-server)
    (if thinklsp-settings
        (jsonrpc-notify server :workspace/didChangeConfiguration `(:settings (:thinklsp ,(thinklsp-configuration))))
      (eglot-signal-didChangeConfiguration server))))

(defun thinklsp-eglot--tell-all ()
  "Tell all servers of ours of `thinklsp-settings'."
  (mapc #'thinklsp-eglot--tell (apply #'append (hash-table-values eglot--servers-by-project))))

(add-hook 'thinklsp-settings-functions #'thinklsp-eglot--tell-all)
;; After eglot's own, which replaces what a server knew.
(add-hook 'eglot-connect-hook #'thinklsp-eglot--tell t)

;;; Buffers

(defun thinklsp-eglot--here ()
  "Turn `thinklsp-mode' on or off with the server."
  (let ((ours (and (eglot-managed-p) (thinklsp-eglot--server))))
    (thinklsp-mode (if ours 1 -1))
    (when ours (thinklsp-eglot--flymake))))

(defun thinklsp-eglot--flymake ()
  "Give the other backends of this mode, which eglot puts aside, back to Flymake.
Thinklsp finds no problems, so without them there is nothing to show."
  (when-let ((saved (assq 'flymake-diagnostic-functions eglot--saved-bindings)))
    (setq-local flymake-diagnostic-functions (cdr saved))
    (if (cl-set-difference (cdr saved) (cons t (default-value 'flymake-diagnostic-functions)))
        (flymake-start)
      (flymake-mode -1))))

(add-hook 'eglot-managed-mode-hook #'thinklsp-eglot--here)

(provide 'thinklsp-eglot)
;;; thinklsp-eglot.el ends here
