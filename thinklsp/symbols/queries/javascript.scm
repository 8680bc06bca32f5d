; Additional patterns for JavaScript; see ecmascript.scm for the common patterns.
(field_definition property: (_) @name value: [(arrow_function) (function_expression) (generator_function)]) @method
