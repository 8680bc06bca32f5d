; Patterns common to JavaScript and TypeScript. Declarations.
(function_declaration name: (identifier) @name) @function
(generator_function_declaration name: (identifier) @name) @function
(class_declaration name: (_) @name) @class
(method_definition name: (_) @name) @method

; Functions and classes named by assignment.
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

; Named objects; outline.py skips objects on a single line.
(variable_declarator name: (identifier) @name value: (object [(pair) (method_definition)])) @object
(assignment_expression
  left: [(identifier) @name (member_expression property: (_) @name)]
  right: (object [(pair) (method_definition)])) @object
(pair key: (_) @name value: (object [(pair) (method_definition)])) @object

; Named function and class expressions.
(function_expression name: (identifier) @name) @function
(generator_function name: (identifier) @name) @function
(class name: (_) @name) @class
