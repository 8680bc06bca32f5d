;;; thinklsp-eglot.el --- thinklsp over eglot  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: Apache-2.0

;;; Commentary:

;; Eglot runs one server for a buffer, so thinklsp takes the place of another one in the modes that are given to it.
;; Commands go out without a deadline and with a token of ours, so the thinking is shown even by eglot 1.9, which announces
;; no progress, and Emacs never waits for a turn.

;;; Code:

(require 'eglot)
(require 'thinklsp)

(defclass thinklsp-eglot-server (eglot-lsp-server) ()
  "A thinklsp server that eglot runs.")

;;;###autoload
(defun thinklsp-eglot-add (&rest modes)
  "Make thinklsp the server of MODES and of chat documents; a project has one for all of them."
  (add-to-list 'eglot-server-programs
               `((,@modes thinklsp-chat-mode) . (thinklsp-eglot-server . ,thinklsp-command)))
  (add-hook 'thinklsp-chat-mode-hook #'eglot-ensure))

(defun thinklsp-eglot--server ()
  "The server of this buffer if it is one of ours."
  (let ((server (eglot-current-server)))
    (and server (cl-typep server 'thinklsp-eglot-server) server)))

(defun thinklsp-eglot--connection ()
  "What `thinklsp-connection-functions' asks for."
  (when-let ((server (thinklsp-eglot--server)))
    (make-thinklsp-connection
     :root (project-root (eglot--project server))
     :request (lambda (method params then otherwise)
                (jsonrpc-async-request
                 server (intern (concat ":" method)) params :timeout nil :success-fn then
                 :error-fn (cl-function (lambda (&key message &allow-other-keys) (funcall otherwise message)))))
     :notify (lambda (method params) (jsonrpc-notify server (intern (concat ":" method)) params))
     :execute (lambda (command argument)
                (jsonrpc-request server :workspace/executeCommand
                                 (list :command command :arguments (vector argument)))))))

(add-hook 'thinklsp-connection-functions #'thinklsp-eglot--connection)

(cl-defmethod eglot-handle-notification ((_server thinklsp-eglot-server) (_method (eql $/progress)) &key token value
                                         &allow-other-keys)
  "Progress of our turns is ours to show; eglot's own method, where it has one, shows the rest."
  (or (thinklsp-on-progress token value)
      (when (cl-next-method-p) (cl-call-next-method))))

(cl-defmethod eglot-execute-command ((_server thinklsp-eglot-server) command arguments)
  "Code actions and lenses: a turn runs without a deadline."
  (thinklsp-eglot--run (format "%s" command) arguments))

(when (fboundp 'eglot-execute)
  (cl-defmethod eglot-execute ((_server thinklsp-eglot-server) action)
    "The same for newer eglot, which asks with the whole ACTION."
    (let ((command (plist-get action :command)))
      (if (or (null command) (plist-get action :edit))
          (cl-call-next-method)
        (let ((command (if (stringp command) action command)))
          (thinklsp-eglot--run (plist-get command :command) (plist-get command :arguments)))))))

(defun thinklsp-eglot--run (command arguments)
  "Run COMMAND with the vector ARGUMENTS: turns in the background, all others at once."
  (let ((argument (if (> (length arguments) 0) (aref arguments 0) (make-hash-table))))
    (cond ((equal command "thinklsp.send") (thinklsp-send))
          ((member command '("thinklsp.action" "thinklsp.chat" "thinklsp.compact")) (thinklsp--run command argument))
          (t (thinklsp--ask command argument)))))

(cl-defmethod eglot-handle-request ((_server thinklsp-eglot-server) (_method (eql workspace/configuration)) &key items)
  "`thinklsp-settings' where they are set, else what `eglot-workspace-configuration' says."
  (if thinklsp-settings
      (vconcat (mapcar (lambda (_) (thinklsp-configuration)) items))
    (cl-call-next-method)))

(defun thinklsp-eglot--tell-settings ()
  "Tell every server of ours."
  (dolist (servers (hash-table-values eglot--servers-by-project))
    (dolist (server servers)
      (when (cl-typep server 'thinklsp-eglot-server)
        (jsonrpc-notify server :workspace/didChangeConfiguration
                        `(:settings (:thinklsp ,(or (thinklsp-configuration) (make-hash-table)))))))))

(add-hook 'thinklsp-settings-functions #'thinklsp-eglot--tell-settings)

(defun thinklsp-eglot--here ()
  "Turn `thinklsp-mode' on or off with the server."
  (thinklsp-mode (if (and (eglot-managed-p) (thinklsp-eglot--server)) 1 -1)))

(add-hook 'eglot-managed-mode-hook #'thinklsp-eglot--here)

(provide 'thinklsp-eglot)
;;; thinklsp-eglot.el ends here
