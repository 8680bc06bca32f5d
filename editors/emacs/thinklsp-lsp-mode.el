;;; thinklsp-lsp-mode.el --- thinklsp over lsp-mode  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: Apache-2.0

;;; Commentary:

;; Registers thinklsp as an add-on for every mode: it runs in addition to the
;; server of the language.

;;; Code:

(require 'lsp-mode)
(require 'thinklsp-edits)
(require 'thinklsp-turns)

(declare-function thinklsp-mode "thinklsp")

(defun thinklsp-lsp-mode--workspace ()
  "Return this buffer's thinklsp workspace, or nil."
  (cl-find-if #'thinklsp-lsp-mode--ours-p (lsp-workspaces)))

(defun thinklsp-lsp-mode--ours-p (workspace)
  "Return non-nil if WORKSPACE belongs to a thinklsp server."
  (eq (lsp--client-server-id (lsp--workspace-client workspace)) 'thinklsp))

(defun thinklsp-lsp-mode--connection ()
  "Return this buffer's connection, or nil."
  (when-let ((workspace (thinklsp-lsp-mode--workspace)))
    (make-thinklsp-connection
     :root (lsp--workspace-root workspace)
     :process (lsp--workspace-cmd-proc workspace)
     :request (lambda (method params then otherwise)
                (with-lsp-workspace workspace
                  (lsp-request-async method params then :mode 'detached
                                     :error-handler (lambda (answer)
                                                      (funcall otherwise (thinklsp-get answer 'message))))))
     :notify (lambda (method params) (with-lsp-workspace workspace (lsp-notify method params)))
     :execute (lambda (command argument)
                (with-lsp-workspace workspace
                  (lsp-request "workspace/executeCommand"
                               (list :command command :arguments (vector argument))))))))

(add-hook 'thinklsp-connection-functions #'thinklsp-lsp-mode--connection)

(defun thinklsp-lsp-mode--progress (workspace params)
  "Show the progress PARAMS of WORKSPACE if they belong to a turn.
Leave other progress to lsp-mode."
  (unless (thinklsp-on-progress (thinklsp-get params 'token) (thinklsp-get params 'value))
    (funcall lsp-progress-function workspace params)))

(defun thinklsp-lsp-mode--run (command)
  "Run the COMMAND of a code action or code lens without a time limit."
  (let ((arguments (thinklsp-get command 'arguments)))
    (thinklsp-execute (thinklsp-get command 'command)
                      (if (seq-empty-p arguments) (make-hash-table) (elt arguments 0)))))

(defun thinklsp-lsp-mode--configuration (_workspace params)
  "Answer each item of PARAMS with `thinklsp-settings'.
If they are nil, use the section \"thinklsp\" of lsp-mode."
  (if thinklsp-settings
      (vconcat (mapcar (lambda (_) (thinklsp-configuration)) (thinklsp-get params 'items)))
    (lsp--build-workspace-configuration-response params)))

(defun thinklsp-lsp-mode--review (_workspace params)
  "Ask which files of the edit in PARAMS are changed."
  (thinklsp-review-changes (thinklsp-get params 'label) (thinklsp-get params 'edit 'documentChanges)))

(defun thinklsp-lsp-mode--edit (_workspace params)
  "Apply the edit in PARAMS without a question."
  (thinklsp-answer-edit (thinklsp-get params 'edit)
                        (lambda (edits version)
                          (when (and version lsp-mode (/= version lsp--cur-version))
                            (error "The document has changed"))
                          (lsp--apply-text-edits edits 'server-requested))))

(defun thinklsp-lsp-mode--table (handler &rest names)
  "Return a hash table that maps each of NAMES to HANDLER."
  (let ((table (make-hash-table :test 'equal)))
    (dolist (name names table) (puthash name handler table))))

(defun thinklsp-lsp-mode--request-handlers ()
  "Return the handlers of the server's requests."
  (let ((table (thinklsp-lsp-mode--table #'thinklsp-lsp-mode--configuration "workspace/configuration")))
    (puthash "thinklsp/editor/review" #'thinklsp-lsp-mode--review table)
    (puthash "workspace/applyEdit" #'thinklsp-lsp-mode--edit table)
    table))

(lsp-register-client
 (make-lsp-client
  :new-connection (lsp-stdio-connection (lambda () thinklsp-command))
  :activation-fn (lambda (&rest _) t)
  :add-on? t
  :server-id 'thinklsp
  :notification-handlers (thinklsp-lsp-mode--table #'thinklsp-lsp-mode--progress "$/progress")
  :request-handlers (thinklsp-lsp-mode--request-handlers)
  :custom-capabilities '((experimental . ((thinklsp . ((editor . ["review"]))))))
  :action-handlers (thinklsp-lsp-mode--table #'thinklsp-lsp-mode--run
                                             "thinklsp.action" "thinklsp.chat" "thinklsp.send" "thinklsp.compact")))

(add-to-list 'lsp-language-id-configuration '(thinklsp-chat-mode . "markdown"))
(add-hook 'thinklsp-chat-mode-hook #'lsp)

(defun thinklsp-lsp-mode--tell-all ()
  "Send `thinklsp-settings' to all thinklsp servers."
  (dolist (workspace (cl-remove-if-not #'thinklsp-lsp-mode--ours-p (lsp--session-workspaces (lsp-session))))
    (with-lsp-workspace workspace
      (lsp-notify "workspace/didChangeConfiguration"
                  `(:settings (:thinklsp ,(or (thinklsp-configuration) (make-hash-table))))))))

(add-hook 'thinklsp-settings-functions #'thinklsp-lsp-mode--tell-all)

(defun thinklsp-lsp-mode--here ()
  "Enable `thinklsp-mode' if this buffer has a thinklsp server."
  (when (thinklsp-lsp-mode--workspace) (thinklsp-mode 1)))

(add-hook 'lsp-after-open-hook #'thinklsp-lsp-mode--here)

(provide 'thinklsp-lsp-mode)
;;; thinklsp-lsp-mode.el ends here
