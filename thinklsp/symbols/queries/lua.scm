(function_declaration name: [
  (identifier) @name
  (dot_index_expression table: (_) @scope field: (_) @name)]) @function
(function_declaration name: (method_index_expression table: (_) @scope method: (_) @name)) @method
(assignment_statement
  (variable_list . name: [(identifier) @name (dot_index_expression table: (_) @scope field: (_) @name)])
  (expression_list . value: (function_definition))) @function
(field name: (identifier) @name value: (function_definition)) @function
