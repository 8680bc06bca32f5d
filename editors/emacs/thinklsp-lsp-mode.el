;;; thinklsp-lsp-mode.el --- thinklsp over lsp-mode  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: Apache-2.0

;;; Commentary:

;; Registers thinklsp as an add-on server for every mode: it runs beside the language's own.

;;; Code:

(require 'lsp-mode)
(require 'thinklsp)

(defun thinklsp-lsp--workspace ()
  "The workspace of thinklsp in this buffer."
  (cl-find 'thinklsp (lsp-workspaces) :key (lambda (workspace) (lsp--client-server-id (lsp--workspace-client workspace)))))

(defun thinklsp-lsp--connection ()
  "What `thinklsp-connection-functions' asks for."
  (when-let ((workspace (thinklsp-lsp--workspace)))
    (make-thinklsp-connection
     :root (lsp--workspace-root workspace)
     :request (lambda (method params then otherwise)
                (with-lsp-workspace workspace
                  (lsp-request-async method params then :mode 'detached
                                     :error-handler (lambda (answer) (funcall otherwise (thinklsp--get answer 'message))))))
     :notify (lambda (method params) (with-lsp-workspace workspace (lsp-notify method params)))
     :execute (lambda (command argument)
                (with-lsp-workspace workspace
                  (lsp-request "workspace/executeCommand" (list :command command :arguments (vector argument))))))))

(add-hook 'thinklsp-connection-functions #'thinklsp-lsp--connection)

(defun thinklsp-lsp--progress (workspace params)
  "Ours is shown in the mode line of `thinklsp-mode', the rest by lsp-mode."
  (unless (thinklsp-on-progress (thinklsp--get params 'token) (thinklsp--get params 'value))
    (funcall lsp-progress-function workspace params)))

(defun thinklsp-lsp--run (action)
  "Run the command ACTION of a code action or lens in the background."
  (let ((arguments (thinklsp--get action 'arguments)))
    (if (equal (thinklsp--get action 'command) "thinklsp.send")
        (thinklsp-send)
      (thinklsp--run (thinklsp--get action 'command) (elt arguments 0)))))

(defun thinklsp-lsp--table (&rest rows)
  "A hash table of ROWS, key after value."
  (let ((table (make-hash-table :test 'equal)))
    (cl-loop for (key value) on rows by #'cddr do (puthash key value table))
    table))

(lsp-register-client
 (make-lsp-client
  :new-connection (lsp-stdio-connection (lambda () thinklsp-command))
  :activation-fn (lambda (&rest _) t)
  :add-on? t
  :server-id 'thinklsp
  :notification-handlers (thinklsp-lsp--table "$/progress" #'thinklsp-lsp--progress)
  :request-handlers (thinklsp-lsp--table
                     "workspace/configuration"
                     (lambda (_ params)
                       (vconcat (mapcar (lambda (_) (or (thinklsp-configuration) (make-hash-table)))
                                        (thinklsp--get params 'items)))))
  :action-handlers (thinklsp-lsp--table "thinklsp.action" #'thinklsp-lsp--run "thinklsp.send" #'thinklsp-lsp--run)))

(add-to-list 'lsp-language-id-configuration '(thinklsp-chat-mode . "markdown"))
(add-hook 'thinklsp-chat-mode-hook #'lsp)

(defun thinklsp-lsp--tell-settings ()
  "Tell every server of ours."
  (dolist (workspace (lsp--session-workspaces (lsp-session)))
    (when (eq (lsp--client-server-id (lsp--workspace-client workspace)) 'thinklsp)
      (with-lsp-workspace workspace
        (lsp-notify "workspace/didChangeConfiguration"
                    `(:settings (:thinklsp ,(or (thinklsp-configuration) (make-hash-table)))))))))

(add-hook 'thinklsp-settings-functions #'thinklsp-lsp--tell-settings)
(add-hook 'lsp-after-open-hook (lambda () (when (thinklsp-lsp--workspace) (thinklsp-mode 1))))

(provide 'thinklsp-lsp-mode)
;;; thinklsp-lsp-mode.el ends here
