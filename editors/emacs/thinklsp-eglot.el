;;; thinklsp-eglot.el --- thinklsp over eglot  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: Apache-2.0

;;; Commentary:

;; Eglot runs one server per buffer, so thinklsp replaces the other server in
;; the modes that you add.  Turns have no time limit and their own progress
;; token: Emacs never blocks, and even eglot 1.9, which does not support
;; progress, shows the status of the model.

;;; Code:

(require 'eglot)
(require 'thinklsp-edits)
(require 'thinklsp-turns)

(declare-function thinklsp-mode "thinklsp")

(defclass thinklsp-eglot-server (eglot-lsp-server) ()
  "A thinklsp server that eglot runs.")

(put 'thinklsp-chat-mode 'eglot-language-id "markdown")

;;;###autoload
(defun thinklsp-eglot-add (&rest modes)
  "Make thinklsp the server for MODES and chat documents."
  (add-to-list 'eglot-server-programs
               (cons `(,@modes thinklsp-chat-mode)
                     (lambda (&rest _) (cons 'thinklsp-eglot-server thinklsp-command))))
  (add-hook 'thinklsp-chat-mode-hook #'eglot-ensure))

(defun thinklsp-eglot--or-thinklsp (contact)
  "Return a contact function for CONTACT, or for thinklsp if CONTACT is missing."
  (lambda (&rest arguments)
    (let ((found (condition-case nil
                     (if (functionp contact) (apply contact arguments) contact)
                   (error nil))))
      (if (or (null found)
              (and (stringp (car-safe found))
                   (not (integerp (car-safe (cdr-safe found))))
                   (not (executable-find (car found) t))))
          (cons 'thinklsp-eglot-server thinklsp-command)
        found))))

;;;###autoload
(defun thinklsp-eglot-add-where-none ()
  "Make thinklsp the server for chat documents and for modes without a server.
The latter are the modes whose own servers are not installed."
  (setq eglot-server-programs
        (mapcar (pcase-lambda (`(,modes . ,contact)) (cons modes (thinklsp-eglot--or-thinklsp contact)))
                eglot-server-programs))
  (thinklsp-eglot-add))

(defun thinklsp-eglot--server ()
  "Return this buffer's server if it is a thinklsp server."
  (let ((server (eglot-current-server)))
    (when (cl-typep server 'thinklsp-eglot-server) server)))

(defun thinklsp-eglot--flush ()
  "Send this buffer's pending changes to its server, if it has one."
  (when (eglot-managed-p) (eglot--signal-textDocument/didChange)))

(defun thinklsp-eglot--connection ()
  "Return this buffer's connection, or nil."
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
                ;; A long timeout: eglot may ask the user about an edit.
                (jsonrpc-request server :workspace/executeCommand
                                 (list :command command :arguments (vector argument)) :timeout 120)))))

(add-hook 'thinklsp-connection-functions #'thinklsp-eglot--connection)

(cl-defmethod eglot-handle-notification ((_server thinklsp-eglot-server) (_method (eql '$/progress))
                                         &key token value &allow-other-keys)
  "Show VALUE if TOKEN belongs to a turn; leave other tokens to eglot."
  (unless (thinklsp-on-progress token value)
    (cl-call-next-method)))

(cl-defmethod eglot-client-capabilities ((_server thinklsp-eglot-server))
  "Add the operations on files and the review of `thinklsp-edits'."
  (let* ((capabilities (cl-call-next-method))
         (workspace (plist-get capabilities :workspace))
         (edits (thinklsp-with (plist-get workspace :workspaceEdit) 'resourceOperations ["create" "rename" "delete"])))
    (thinklsp-with (thinklsp-with capabilities 'workspace (thinklsp-with workspace 'workspaceEdit edits))
                   'experimental '(:thinklsp (:editor ["review"])))))

(cl-defmethod eglot-handle-request ((_server thinklsp-eglot-server) (_method (eql 'thinklsp/editor/review))
                                    &key label edit &allow-other-keys)
  "Ask which files of EDIT are changed.  LABEL is its title."
  (thinklsp-review-changes label (plist-get edit :documentChanges)))

(cl-defmethod eglot-handle-request ((_server thinklsp-eglot-server) (_method (eql 'workspace/applyEdit))
                                    &key edit &allow-other-keys)
  "Apply EDIT without a question, since the server has asked if it had to."
  (thinklsp-answer-edit edit #'eglot--apply-text-edits))

(cl-defmethod eglot-handle-request :after ((server thinklsp-eglot-server) (_method (eql 'workspace/applyEdit))
                                           &key &allow-other-keys)
  "Send the changes of an edit to SERVER before the answer.
Eglot's timer does not run while `thinklsp-undo' waits, and the server
considers an edit applied only when it has received the new text."
  (dolist (buffer (eglot--managed-buffers server))
    (when (buffer-live-p buffer)
      (with-current-buffer buffer (thinklsp-eglot--flush)))))

(if (fboundp 'eglot-execute)
    (cl-defmethod eglot-execute ((_server thinklsp-eglot-server) action)
      "Run ACTION without a time limit."
      (let ((command (plist-get action :command)))
        (cond ((or (null command) (plist-get action :edit)) (cl-call-next-method))
              ((stringp command) (thinklsp-eglot--run command (plist-get action :arguments)))
              (t (thinklsp-eglot--run (plist-get command :command) (plist-get command :arguments))))))
  (with-suppressed-warnings ((obsolete eglot-execute-command))
    (cl-defmethod eglot-execute-command ((_server thinklsp-eglot-server) command arguments)
      "Run a code action's COMMAND with the vector ARGUMENTS, without a time limit."
      (thinklsp-eglot--run command arguments))))

(defun thinklsp-eglot--run (command arguments)
  "Run COMMAND with the vector ARGUMENTS."
  (thinklsp-execute (format "%s" command) (if (seq-empty-p arguments) (make-hash-table) (aref arguments 0))))

;;; Settings

(cl-defmethod eglot-handle-request ((_server thinklsp-eglot-server) (_method (eql 'workspace/configuration))
                                    &key items)
  "Answer each of ITEMS with `thinklsp-settings'.
If they are nil, use `eglot-workspace-configuration'."
  (if thinklsp-settings
      (vconcat (mapcar (lambda (_) (thinklsp-configuration)) items))
    (cl-call-next-method)))

(defun thinklsp-eglot--tell (server)
  "Send `thinklsp-settings' to SERVER if it is a thinklsp server."
  (when (cl-typep server 'thinklsp-eglot-server)
    (if thinklsp-settings
        (jsonrpc-notify server :workspace/didChangeConfiguration `(:settings (:thinklsp ,(thinklsp-configuration))))
      (eglot-signal-didChangeConfiguration server))))

(defun thinklsp-eglot--tell-all ()
  "Send `thinklsp-settings' to all thinklsp servers."
  (mapc #'thinklsp-eglot--tell (apply #'append (hash-table-values eglot--servers-by-project))))

(add-hook 'thinklsp-settings-functions #'thinklsp-eglot--tell-all)
;; Run after eglot's own function, which replaces the settings of the server.
(add-hook 'eglot-connect-hook #'thinklsp-eglot--tell t)

;;; Buffers

(defun thinklsp-eglot--here ()
  "Enable `thinklsp-mode' if thinklsp manages the buffer; otherwise disable it."
  (let ((ours (and (eglot-managed-p) (thinklsp-eglot--server))))
    (thinklsp-mode (if ours 1 -1))
    (when ours (thinklsp-eglot--flymake))))

(defun thinklsp-eglot--flymake ()
  "Restore the Flymake backends of this mode, which eglot disables.
Thinklsp itself reports no diagnostics."
  (when-let ((saved (assq 'flymake-diagnostic-functions eglot--saved-bindings)))
    (setq-local flymake-diagnostic-functions (cdr saved))
    (if (cl-set-difference (cdr saved) (cons t (default-value 'flymake-diagnostic-functions)))
        (flymake-start)
      (flymake-mode -1))))

(add-hook 'eglot-managed-mode-hook #'thinklsp-eglot--here)

(provide 'thinklsp-eglot)
;;; thinklsp-eglot.el ends here
