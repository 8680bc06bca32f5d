"""The JSON fields that a Gemini request may have, message by message, and the type of each.

Names are the snake_case ones; `payload` derives the others. A type in brackets is a list, in braces a map.
"""

from __future__ import annotations

from collections.abc import Mapping

# The fields of a part that make out what it is; a part has exactly one.
DATA = (
    "text", "inline_data", "function_call", "function_response", "file_data", "executable_code",
    "code_execution_result", "tool_call", "tool_response", "audio_transcription",
)  # fmt: skip
_CONTENT = {"role": "string", "parts": "[Part]"}
_ANY_PART = ("media_resolution", "media_processing", "video_metadata", "part_metadata", "speech_metadata")
_DOCUMENTS = ("document_metadata", "spreadsheet_metadata", "audio_metadata")
_SEARCHES = ("google_search", "google_search_retrieval", "google_maps", "code_execution", "url_context")

MESSAGES: Mapping[str, Mapping[str, str]] = {
    "GenerateContentRequest": {
        "model": "string",
        "contents": "[Content]",
        "system_instruction": "Content",
        "tools": "[Tool]",
        "tool_config": "ToolConfig",
        "generation_config": "GenerationConfig",
        "safety_settings": "[SafetySetting]",
        "cached_content": "string",
        "continuation_token": "bytes",
        "service_tier": "any",
        "store": "bool",
        "labels": "any",
    },
    "CountTokensRequest": {
        "model": "string",
        "contents": "[Content]",
        "generate_content_request": "GenerateContentRequest",
    },
    "Content": _CONTENT,
    "Part": {
        "text": "string",
        "thought": "bool",
        "thought_signature": "bytes",
        "function_call": "FunctionCall",
        "function_response": "FunctionResponse",
        "inline_data": "Blob",
        "file_data": "any",
        "executable_code": "any",
        "code_execution_result": "any",
        "tool_call": "any",
        "tool_response": "any",
        "audio_transcription": "any",
        **dict.fromkeys((*_ANY_PART, *_DOCUMENTS), "any"),
    },
    "Blob": {"mime_type": "string", "data": "bytes", "display_name": "string"},
    "FunctionCall": {
        "id": "string",
        "name": "string",
        "args": "struct",
        "partial_args": "any",
        "will_continue": "bool",
    },
    "FunctionResponse": {
        "id": "string",
        "name": "string",
        "response": "struct",
        "parts": "any",
        "will_continue": "bool",
        "scheduling": "any",
    },
    "Tool": {
        "function_declarations": "[FunctionDeclaration]",
        **dict.fromkeys((*_SEARCHES, "computer_use", "file_search", "mcp_servers"), "any"),
    },
    "FunctionDeclaration": {
        "name": "string",
        "description": "string",
        "parameters": "Schema",
        "parameters_json_schema": "any",
        "response": "Schema",
        "response_json_schema": "any",
        "behavior": "any",
    },
    # A subset of OpenAPI, and not JSON Schema: keys that only that knows are refused.
    "Schema": {
        **dict.fromkeys(("title", "description", "format", "pattern", "ref"), "string"),
        **dict.fromkeys(("minimum", "maximum"), "float"),
        **dict.fromkeys(("min_items", "max_items", "min_length", "max_length"), "int"),
        **dict.fromkeys(("min_properties", "max_properties"), "int"),
        **dict.fromkeys(("required", "enum", "property_ordering"), "[string]"),
        **dict.fromkeys(("default", "example", "additional_properties"), "any"),
        **dict.fromkeys(("properties", "defs"), "{Schema}"),
        "type": "Schema.Type",
        "nullable": "bool",
        "items": "Schema",
        "any_of": "[Schema]",
    },
    "ToolConfig": {
        "function_calling_config": "FunctionCallingConfig",
        "retrieval_config": "any",
        "include_server_side_tool_invocations": "bool",
    },
    "FunctionCallingConfig": {"mode": "FunctionCallingConfig.Mode", "allowed_function_names": "[string]"},
    "GenerationConfig": {
        "thinking_config": "ThinkingConfig",
        "stop_sequences": "[string]",
        "response_modalities": "[string]",
        "response_mime_type": "string",
        **dict.fromkeys(("candidate_count", "max_output_tokens", "seed", "logprobs"), "int"),
        **dict.fromkeys(("temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty"), "float"),
        **dict.fromkeys(("response_logprobs", "enable_enhanced_civic_answers"), "bool"),
        **dict.fromkeys(("response_schema", "response_json_schema", "response_format"), "any"),
        **dict.fromkeys(("media_resolution", "speech_config", "image_config"), "any"),
        **dict.fromkeys(("audio_transcription_config", "translation_config"), "any"),
    },
    "ThinkingConfig": {
        "include_thoughts": "bool",
        "thinking_budget": "int",
        "thinking_level": "ThinkingConfig.ThinkingLevel",
    },
    "SafetySetting": {"category": "string", "threshold": "string", "method": "string"},
}  # fmt: skip
ENUMS: Mapping[str, frozenset[str]] = {
    "ThinkingConfig.ThinkingLevel": frozenset(
        {"THINKING_LEVEL_UNSPECIFIED", "MINIMAL", "LOW", "MEDIUM", "HIGH", "XHIGH"}
    ),
    "FunctionCallingConfig.Mode": frozenset({"MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED"}),
    "Schema.Type": frozenset({"TYPE_UNSPECIFIED", "STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"}),
}
