(class name: [(constant) @name (scope_resolution scope: (_) @scope name: (_) @name)]) @class
(module name: [(constant) @name (scope_resolution scope: (_) @scope name: (_) @name)]) @module
(method name: (_) @name) @method
(singleton_method name: (_) @name) @method
