"""A model file for llama.cpp that says exactly what a test wants.

Its one layer does nothing, so the next token follows from the last one alone. Every text of `says` is a chain of tokens
that occur nowhere else, from a marker to the end of the message. The chat template chooses the marker by the prompt and
the number of answers since. Prompts are read byte by byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np

Says = Mapping[str, Sequence[str]]
# A text that ends in this never ends: its last piece is followed by its first one.
ENDLESS = "…and so on "
_START, _END = "<|im_start|>", "<|im_end|>"
_WIDTH, _HEAD, _CONTEXT = 256, 16, 131_072
_CERTAINTY = 4.0  # By this the right token's logit is about 64, and those of all others below 20.
_SHORTEST_PIECE = 3
_TEMPLATE = """\
{%- if tools -%}
<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif -%}
{%- set now = namespace(case='plain', step=0, rest=0) -%}
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{%- if message.role == 'assistant' %}
{%- set now.step = now.step + 1 %}
{% if message.reasoning_content %}<think>
{{ message.reasoning_content }}
</think>

{% endif %}{% if message.content %}{{ message.content }}{% endif %}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": \
{{ call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}
{%- else %}
{{ message.content }}
{%- if message.role == 'user' %}
{%- set now.step = 0 %}
{%- set now.rest = message.content | length %}
{%- for case in CASES %}{% set rest = message.content.split('case ' ~ case ~ '.')[-1] | length -%}
{% if rest < now.rest %}{% set now.case = case %}{% set now.rest = rest %}{% endif %}{% endfor %}
{%- endif %}
{%- endif %}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% if now.case == 'effort' and reasoning_effort %}{% set now.case = 'effort-' ~ reasoning_effort %}{% endif -%}
{%- set silent = enable_thinking is defined and not enable_thinking -%}
{%- if now.case == 'mode' and silent %}{% set now.case = 'mode-off' %}{% endif -%}
{{ '<|say-' ~ now.case ~ '-' ~ now.step ~ '|>' }}
{%- endif -%}
"""


@dataclass
class _Vocabulary:
    """Tokens as byte strings, their kinds, and by index the token that follows."""

    tokens: list[bytes] = field(default_factory=list)
    control: set[int] = field(default_factory=set)
    follows: dict[int, int] = field(default_factory=dict)
    last: list[int] = field(default_factory=list)

    def add(self, token: bytes, *, control: bool = False) -> int:
        self.tokens.append(token)
        if control:
            self.control.add(len(self.tokens) - 1)
        return len(self.tokens) - 1

    def add_chain(self, marker: str, text: str) -> None:
        previous = self.add(marker.encode(), control=True)
        first = None
        for piece in _pieces(text.encode(), set(self.tokens)):
            index = self.add(piece)
            self.follows[previous], previous = index, index
            first = index if first is None else first
        if text.endswith(ENDLESS) and first is not None:
            self.follows[previous] = first
        else:
            self.last.append(previous)


def write_model(path: Path, says: Says) -> None:
    """Write the model file; `says` has the texts of each case, one for each answer of the model."""
    vocabulary = _Vocabulary()
    for byte in range(256):
        vocabulary.add(bytes([byte]))
    vocabulary.add(_START.encode(), control=True)
    end = vocabulary.add(_END.encode(), control=True)
    for case, texts in says.items():
        for step, text in enumerate(texts):
            vocabulary.add_chain(f"<|say-{case}-{step}|>", text)
    writer = gguf.GGUFWriter(str(path), "llama")
    _write_form(writer, vocabulary, end, _TEMPLATE.replace("CASES", repr(sorted(says))))
    _write_weights(writer, vocabulary, end)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _pieces(text: bytes, used: set[bytes]) -> list[bytes]:
    """Cut the text into the shortest pieces that are no token yet, characters of several bytes in their middle too."""
    pieces: list[bytes] = []
    start = 0
    while start < len(text):
        end = start + _SHORTEST_PIECE
        while text[start:end] in used and end < len(text):
            end += 1
        piece = text[start:end]
        while piece in used and pieces:  # Only the end of the text is left, and another text ends so.
            previous = pieces.pop()
            used.discard(previous)
            piece = previous + piece
        assert piece not in used, f"another text says this, too: {text!r}"
        used.add(piece)
        pieces.append(piece)
        start = end
    return pieces


def _write_form(writer: gguf.GGUFWriter, vocabulary: _Vocabulary, end: int, template: str) -> None:
    writer.add_name("says-what-a-test-wants")
    writer.add_context_length(_CONTEXT)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(_HEAD)
    writer.add_head_count(1)
    writer.add_head_count_kv(1)
    writer.add_key_length(_HEAD)
    writer.add_value_length(_HEAD)
    writer.add_rope_dimension_count(_HEAD)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([_spelt(token, index in vocabulary.control) for index, token in enumerate(vocabulary.tokens)])
    kinds = [
        gguf.TokenType.CONTROL if index in vocabulary.control else gguf.TokenType.NORMAL
        for index in range(len(vocabulary.tokens))
    ]
    writer.add_token_types(kinds)
    writer.add_token_merges([f"{_LETTERS[0xFE]} {_LETTERS[0xFF]}"])  # One that never applies: a list may not be empty.
    writer.add_bos_token_id(end)
    writer.add_eos_token_id(end)
    writer.add_add_bos_token(False)
    writer.add_chat_template(template)


def _write_weights(writer: gguf.GGUFWriter, vocabulary: _Vocabulary, end: int) -> None:
    random = np.random.default_rng(1)
    count = len(vocabulary.tokens)
    meaning = random.standard_normal((count, _WIDTH)).astype(np.float32)
    # What ends a message is one idea, however many pieces there are that do: they would else drown each other.
    meaning[vocabulary.last] = meaning[end]
    meaning /= np.linalg.norm(meaning, axis=1, keepdims=True)
    output = np.zeros((count, _WIDTH), np.float32)
    for previous, following in vocabulary.follows.items():
        output[following] += meaning[previous]
    output[end] = meaning[end]
    writer.add_tensor("token_embd.weight", meaning)
    writer.add_tensor("output_norm.weight", np.full(_WIDTH, _CERTAINTY, np.float32))
    writer.add_tensor("output.weight", output)
    for name in ("attn_norm", "ffn_norm"):
        writer.add_tensor(f"blk.0.{name}.weight", np.ones(_WIDTH, np.float32))
    into, out = (_HEAD, _WIDTH), (_WIDTH, _HEAD)
    for name, shape in {
        "attn_q": into, "attn_k": into, "attn_v": into, "attn_output": out,
        "ffn_gate": into, "ffn_up": into, "ffn_down": out,
    }.items():  # fmt: skip
        writer.add_tensor(f"blk.0.{name}.weight", np.zeros(shape, np.float32))


def _spelt(token: bytes, control: bool) -> str:
    """Return the token as the file has it: bytes that cannot be printed stand as letters above U+0100."""
    return token.decode() if control else "".join(_LETTERS[byte] for byte in token)


def _letters() -> dict[int, str]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(0x100 + n) for n, byte in enumerate(others)}


_LETTERS = _letters()
