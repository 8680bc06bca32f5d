; What JavaScript and TypeScript have in common. Declarations.
(function_declaration name: (identifier) @name) @function
(generator_function_declaration name: (identifier) @name) @function
(class_declaration name: (_) @name) @class
(method_definition name: (_) @name) @method

; Functions and classes that get their name by being assigned.
(variable_declarator name: (identifier) @name value: [(arrow_function) (function_expression) (generator_function)]) @function
(variable_declarator name: (identifier) @name value: (class)) @class
(assignment_expression
  left: [(identifier) @name (member_expression property: (_) @name)]
  right: [(arrow_function) (function_expression) (generator_function)]) @function
(assignment_expression
  left: [(identifier) @name (member_expression property: (_) @name)]
  right: (class)) @class
(pair key: (_) @name value: [(arrow_function) (function_expression) (generator_function)]) @method
(pair key: (_) @name value: (class)) @class

; Objects with a name; those on a single line are left out again (outline.py).
(variable_declarator name: (identifier) @name value: (object [(pair) (method_definition)])) @object
(assignment_expression
  left: [(identifier) @name (member_expression property: (_) @name)]
  right: (object [(pair) (method_definition)])) @object
(pair key: (_) @name value: (object [(pair) (method_definition)])) @object

; Expressions with a name of their own.
(function_expression name: (identifier) @name) @function
(generator_function name: (identifier) @name) @function
(class name: (_) @name) @class
