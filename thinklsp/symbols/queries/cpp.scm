; The pointer or reference of a return type encloses the function's declarator.
(function_definition declarator: (function_declarator declarator: [(identifier) (field_identifier) (operator_name) (destructor_name)] @name)) @function
(function_definition declarator: (_ (function_declarator declarator: [(identifier) (field_identifier) (operator_name)] @name))) @function
(function_definition declarator: (_ (_ (function_declarator declarator: [(identifier) (field_identifier) (operator_name)] @name)))) @function
(function_definition declarator: (operator_cast) @name) @function
(function_definition declarator: (function_declarator
  declarator: (parenthesized_declarator [(identifier) (field_identifier)] @name))) @function
(function_definition declarator: (_ (function_declarator
  declarator: (parenthesized_declarator [(identifier) (field_identifier)] @name)))) @function
(function_definition declarator: (function_declarator
  declarator: (parenthesized_declarator (pointer_declarator
    declarator: (function_declarator declarator: [(identifier) (field_identifier)] @name))))) @function

; Definitions outside their class: Class::method, namespace::Class::method.
(function_definition declarator: (function_declarator declarator: (qualified_identifier
  scope: (_) @scope name: [(identifier) (operator_name) (destructor_name)] @name))) @method
(function_definition declarator: (_ (function_declarator declarator: (qualified_identifier
  scope: (_) @scope name: [(identifier) (operator_name)] @name)))) @method
(function_definition declarator: (function_declarator declarator: (qualified_identifier name: (qualified_identifier
  scope: (_) @scope name: [(identifier) (operator_name) (destructor_name)] @name)))) @method
(function_definition declarator: (_ (function_declarator declarator: (qualified_identifier name: (qualified_identifier
  scope: (_) @scope name: [(identifier) (operator_name)] @name))))) @method
(function_definition declarator: (function_declarator declarator: (qualified_identifier name: (qualified_identifier
  name: (qualified_identifier scope: (_) @scope name: [(identifier) (operator_name) (destructor_name)] @name))))) @method

; Members that are declared, but not defined, in the class.
(field_declaration_list (declaration declarator: (function_declarator declarator: [(identifier) (destructor_name)] @name)) @method)
(field_declaration declarator: (function_declarator declarator: [(field_identifier) (operator_name)] @name)) @method
(field_declaration declarator: (_ (function_declarator declarator: [(field_identifier) (operator_name)] @name))) @method

(class_specifier name: [(type_identifier) @name (template_type name: (_) @name) (qualified_identifier name: (_) @name)] body: (_)) @class
(struct_specifier name: [(type_identifier) @name (template_type name: (_) @name) (qualified_identifier name: (_) @name)] body: (_)) @struct
(union_specifier name: (type_identifier) @name body: (_)) @union
(enum_specifier name: (_) @name body: (_)) @enum
(namespace_definition name: (_) @name) @namespace
(concept_definition name: (_) @name) @concept
(alias_declaration name: (_) @name) @type
(type_definition type: (struct_specifier !name body: (_)) declarator: (type_identifier) @name) @struct
(type_definition type: (union_specifier !name body: (_)) declarator: (type_identifier) @name) @union
(type_definition type: (enum_specifier !name body: (_)) declarator: (type_identifier) @name) @enum
(type_definition declarator: (type_identifier) @name) @type
(type_definition declarator: (_ declarator: (type_identifier) @name)) @type
(type_definition declarator: (function_declarator
  declarator: (parenthesized_declarator (_ declarator: (type_identifier) @name)))) @type
(type_definition declarator: (function_declarator
  declarator: (parenthesized_declarator (type_identifier) @name))) @type
(type_definition declarator: (_ (function_declarator
  declarator: (parenthesized_declarator (_ declarator: (type_identifier) @name))))) @type

(preproc_function_def name: (identifier) @name) @macro
(preproc_def name: (identifier) @name value: (_)) @macro
