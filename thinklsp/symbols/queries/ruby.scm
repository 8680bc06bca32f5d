(class name: [(constant) @name (scope_resolution scope: (_) @scope name: (_) @name)]) @class
(module name: [(constant) @name (scope_resolution scope: (_) @scope name: (_) @name)]) @module
(method name: (_) @name) @method
(singleton_method name: (_) @name) @method

; Classes and modules that a call creates: Name = Struct.new(:x) do … end.
(assignment left: [(constant) @name (scope_resolution scope: (_) @scope name: (_) @name)]
  right: (call receiver: [(constant) (scope_resolution)] @_receiver method: (identifier) @_method)
  (#match? @_receiver "^(::)?(Class|Struct|Data)$") (#match? @_method "^(new|define)$")) @class
(assignment left: [(constant) @name (scope_resolution scope: (_) @scope name: (_) @name)]
  right: (call receiver: [(constant) (scope_resolution)] @_receiver method: (identifier) @_method)
  (#match? @_receiver "^(::)?Module$") (#eq? @_method "new")) @module
