;;; early-init.el --- Nothing is compiled while a trial runs  -*- lexical-binding: t; -*-
(setq native-comp-deferred-compilation nil
      native-comp-jit-compilation nil
      inhibit-startup-screen t)
