(function_declaration name: (identifier) @name) @function

; A method belongs to the type of its receiver.
(method_declaration
  receiver: (parameter_list (parameter_declaration type: [
    (type_identifier) @scope
    (generic_type type: (type_identifier) @scope)
    (pointer_type (type_identifier) @scope)
    (pointer_type (generic_type type: (type_identifier) @scope))]))
  name: (field_identifier) @name) @method
(method_declaration name: (field_identifier) @name) @method
(method_elem name: (field_identifier) @name) @method

(type_spec name: (type_identifier) @name type: (struct_type)) @struct
(type_spec name: (type_identifier) @name type: (interface_type)) @interface
(type_spec name: (type_identifier) @name) @type
(type_alias name: (type_identifier) @name) @type
(source_file (const_declaration (const_spec name: (identifier) @name) @constant))
