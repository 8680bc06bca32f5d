; The pointer or reference of a return type encloses the function's declarator.
(function_definition declarator: (function_declarator declarator: (identifier) @name)) @function
(function_definition declarator: (_ declarator: (function_declarator declarator: (identifier) @name))) @function
(function_definition declarator: (_ declarator: (_ declarator: (function_declarator declarator: (identifier) @name)))) @function
(function_definition declarator: (function_declarator declarator: (parenthesized_declarator (identifier) @name))) @function
(function_definition declarator: (function_declarator
  declarator: (parenthesized_declarator (pointer_declarator
    declarator: (function_declarator declarator: (identifier) @name))))) @function

(struct_specifier name: (type_identifier) @name body: (_)) @struct
(union_specifier name: (type_identifier) @name body: (_)) @union
(enum_specifier name: (type_identifier) @name body: (_)) @enum
(type_definition type: (struct_specifier !name body: (_)) declarator: (type_identifier) @name) @struct
(type_definition type: (union_specifier !name body: (_)) declarator: (type_identifier) @name) @union
(type_definition type: (enum_specifier !name body: (_)) declarator: (type_identifier) @name) @enum
(type_definition declarator: (type_identifier) @name) @type
(type_definition declarator: (_ declarator: (type_identifier) @name)) @type
(type_definition declarator: (function_declarator
  declarator: (parenthesized_declarator (_ declarator: (type_identifier) @name)))) @type
(type_definition declarator: (function_declarator
  declarator: (parenthesized_declarator (type_identifier) @name))) @type
(type_definition declarator: (_ declarator: (function_declarator
  declarator: (parenthesized_declarator (_ declarator: (type_identifier) @name))))) @type

(preproc_function_def name: (identifier) @name) @macro
(preproc_def name: (identifier) @name value: (_)) @macro
