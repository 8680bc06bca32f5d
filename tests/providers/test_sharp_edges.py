"""Every sharp edge of the services that we know of, with the tests that prove it, or the reason why there is none."""

from __future__ import annotations

import importlib
import inspect

import pytest

from tests.providers import test_edges_of_every_service
from tests.support.anthropic_samples import FOLDER


class Row:
    """`proofs`: ids of tests, and recorded streams that `test_streams` plays. `reason`: why (a part of) the edge cannot
    come about here."""

    def __init__(self, title: str, *proofs: str, reason: str = "") -> None:
        self.title, self.proofs, self.reason = title, proofs, reason


EDGES = "providers/test_edges_of_services"
EVERY = "providers/test_edges_of_every_service"
STREAMS = "providers/test_streams"
FAILURES = "providers/test_failures"
REPLAY = "providers/test_replay"
REQUESTS = "providers/test_requests"
PLAN = "providers/test_thinking_plan"
CATALOGUE = "providers/test_catalogue_requests"
SSE = "http/test_sse"
CALL = "agent/test_model_call"
TURN = "agent/test_turn"
EVERYWHERE = "engine/slow/test_scenarios_everywhere"
SAME = "e2e/providers/test_same_everywhere"
REMEDIES = "agent/test_remedies"
HISTORIES = "agent/slow/test_stored_histories"
NO_SAMPLING = f"{EDGES}::test_no_request_samples_forces_a_tool_or_allows_a_fallback"

ROWS: dict[int, Row] = {
    1: Row(
        "line separators of Unicode inside JSON",
        f"{EVERY}::test_line_separators_of_unicode_stand_inside_json",
        f"{SSE}::test_framing_however_it_is_cut",
        "anthropic/text",
    ),
    2: Row(
        "cuts inside characters and CRLF",
        f"{EVERY}::test_any_cut_gives_the_same_message",
        f"{SSE}::test_fixtures_cut_at_every_byte",
    ),
    3: Row(
        "a clean end in the middle",
        f"{EVERY}::test_a_clean_end_in_the_middle_is_never_an_answer",
        f"{CALL}::test_a_stream_cut_before_its_end_is_never_an_answer",
        f"{CALL}::test_tries_and_restarts",
        "anthropic/truncated",
        "anthropic/truncated_in_an_event",
        "anthropic/truncated_before_stop",
    ),
    4: Row(
        "lines beyond 64 KB", f"{EVERY}::test_lines_may_be_of_any_length", f"{SSE}::test_lines_far_beyond_64_kib_pass"
    ),
    5: Row(
        "pings for minutes",
        f"{EVERY}::test_comments_for_minutes_change_nothing",
        f"{EDGES}::test_pings_for_minutes_change_nothing",
        "http/test_transport::test_a_drip_is_no_silence",
    ),
    6: Row(
        "errors after 200, each shape of this service",
        f"{EVERY}::test_an_error_after_200_is_an_error_in_every_shape",
        f"{STREAMS}::test_a_recorded_failure_raises_its_error",
        f"{CALL}::test_tries_and_restarts",
        "anthropic/error_overloaded",
        "anthropic/error_bare_string",
        "anthropic/error_by_event_name",
        "anthropic/error_unknown_type",
    ),
    7: Row(
        "an error body that is no JSON",
        f"{EVERY}::test_an_error_that_is_no_json_is_told_by_its_status",
        f"{FAILURES}::test_failures_are_classified",
    ),
    8: Row(
        "JSON or a web page instead of a stream",
        f"{EVERY}::test_json_or_a_page_instead_of_a_stream",
        f"{CALL}::test_a_whole_message_instead_of_a_stream",
        f"{CALL}::test_failures_that_stay",
    ),
    9: Row(
        "an error as a bare string",
        f"{EVERY}::test_an_error_after_200_is_an_error_in_every_shape",
        f"{FAILURES}::test_failures_are_classified",
        "anthropic/error_bare_string",
    ),
    10: Row("a flat error in a Responses stream", f"{EVERY}::test_a_flat_error_ends_a_responses_stream"),
    11: Row("a signature is set, not appended", "anthropic/second_signature_wins"),
    12: Row(
        "blocks without deltas", "anthropic/redacted_thinking", "anthropic/server_tools", "anthropic/unknown_parts"
    ),
    13: Row(
        "thinking without text",
        f"{EDGES}::test_thinking_without_text_is_shown_and_goes_back",
        "anthropic/omitted_thinking",
    ),
    14: Row("an empty thinking delta, or none", "anthropic/omitted_thinking", "anthropic/thinking_without_delta"),
    15: Row("several message_delta, cumulative or without usage", "anthropic/usage_totals", "anthropic/usage_missing"),
    16: Row(
        "a call cut by max_tokens",
        f"{EVERY}::test_a_call_that_was_cut_is_no_call",
        f"{SAME}::test_a_cut_answer_runs_nothing_of_it",
        f"{TURN}::test_a_cut_answer_keeps_its_text_and_runs_no_tool",
        "anthropic/cut_tool_arguments",
    ),
    17: Row(
        "a call without arguments",
        f"{EVERY}::test_a_call_without_arguments_has_an_empty_object",
        f"{STREAMS}::test_a_call_without_arguments_has_an_empty_object",
    ),
    18: Row("sampling keys", NO_SAMPLING),
    19: Row(
        "a budget on new models, adaptive on old ones",
        f"{CATALOGUE}::test_every_request_of_a_tool_loop_is_accepted",
        f"{PLAN}::test_a_wish_becomes_a_plan",
        f"{REMEDIES}::test_what_is_refused_steps_down_and_is_said",
    ),
    20: Row("Sonnet 5.5 is switched off by between_tools", f"{EDGES}::test_between_tools_stands_alone"),
    21: Row("effort above high with thinking off", f"{CATALOGUE}::test_every_request_of_a_tool_loop_is_accepted"),
    22: Row("forced tools", NO_SAMPLING),
    23: Row(
        "prefill",
        f"{HISTORIES}::test_every_stored_conversation_can_be_sent",
        f"{TURN}::test_the_checker_finds_what_is_wrong",
    ),
    24: Row(
        "a changed prefix",
        f"{REMEDIES}::test_a_system_prompt_that_changes_in_mid_session",
        f"{REMEDIES}::test_what_is_tried_is_tried_once_said_and_kept",
        f"{REQUESTS}::test_same_value_same_bytes",
    ),
    25: Row(
        "an edited history",
        f"{REMEDIES}::test_what_is_tried_is_tried_once_said_and_kept",
        reason="nothing here edits, deletes or compacts earlier messages; a refusal is met all the same",
    ),
    26: Row(
        "pause_turn",
        f"{EDGES}::test_a_paused_answer_goes_back_unchanged_at_the_end",
        f"{TURN}::test_a_pause_is_sent_back_as_it_is",
        f"{TURN}::test_steps_are_limited",
        "anthropic/pause_turn",
    ),
    27: Row(
        "a refusal with part of an answer",
        f"{EVERY}::test_a_refusal_is_told_apart_from_an_answer",
        f"{SAME}::test_refusal_keeps_nothing_and_applies_nothing",
        f"{TURN}::test_a_refusal_keeps_nothing_of_the_answer_and_runs_no_tool",
        "anthropic/refusal",
        "anthropic/refusal_by_category",
    ),
    28: Row("text before results", f"{REPLAY}::test_a_conversation_becomes_what_is_sent"),
    29: Row(
        "a stopped turn leaves no open call",
        f"{EVERY}::test_a_turn_that_was_stopped_leaves_no_open_call",
        f"{TURN}::test_turn_cancelled_anywhere_leaves_valid_conversation",
    ),
    30: Row(
        "a spend limit is not tried again",
        f"{FAILURES}::test_failures_are_classified",
        f"{CALL}::test_failures_that_stay",
    ),
    31: Row(
        "new events and blocks",
        f"{EVERY}::test_new_events_and_new_keys_change_nothing",
        f"{STREAMS}::test_rubbish_is_an_error_or_a_message_and_nothing_else",
        "anthropic/unknown_parts",
    ),
    32: Row(
        "another model answers",
        NO_SAMPLING,
        "anthropic/unknown_parts",
        reason="the service changes the model only where the request allows it",
    ),
    33: Row(
        "an empty end after results",
        f"{EVERY}::test_an_empty_answer_after_results_is_an_answer",
        f"{EVERYWHERE}::test_row_33_empty_answer_after_results_is_retried_once",
        f"{TURN}::test_thinking_alone_is_asked_to_go_on_once",
        "anthropic/empty_end",
    ),
    34: Row(
        "thinking without signature",
        f"{EVERY}::test_thinking_goes_back_only_where_it_came_from",
        f"{REPLAY}::test_unsigned_thinking_returns_only_to_its_issuer",
        "anthropic/local_server_without_signature",
    ),
    35: Row(
        "an error event under status 200",
        f"{STREAMS}::test_a_recorded_failure_raises_its_error",
        f"{CALL}::test_tries_and_restarts",
        "anthropic/error_overloaded",
        "anthropic/error_rate_limit",
        "anthropic/error_invalid_request",
    ),
    36: Row(
        "partial encrypted content",
        f"{REPLAY}::test_recorded_answers_survive_the_round_trip",
        "openai_responses/thinking_then_tool",
        "openai_responses/commentary_and_final_answer",
        "openai_responses/only_deltas",
    ),
    37: Row(
        "thinking without a summary",
        f"{EDGES}::test_thinking_without_text_is_shown_and_goes_back",
        "openai_responses/empty_summary",
    ),
    38: Row(
        "thinking without the item behind it",
        f"{EDGES}::test_thinking_and_its_next_item_return_together",
        f"{REPLAY}::test_a_conversation_becomes_what_is_sent",
        reason="nobody edits earlier messages here; only answers that were cut lose parts, and those go back bare",
    ),
    39: Row("an item's id is not its call id", f"{EDGES}::test_a_tool_loop_goes_over_the_wire_and_back"),
    40: Row(
        "arguments in pieces or whole",
        "openai_responses/only_done_events",
        "openai_responses/only_deltas",
        "openai_responses/done_replaces_the_pieces",
    ),
    41: Row(
        "items in any order",
        f"{EDGES}::test_items_stand_under_their_index",
        "openai_responses/parallel_calls_interleaved_with_gaps",
    ),
    42: Row(
        "a limit used up by thinking",
        f"{EDGES}::test_what_the_service_did_to_thinking_is_reported",
        "openai_responses/call_cut_by_the_limit",
        "openai_responses/whole_looking_calls_that_were_cut",
    ),
    43: Row("unknown keys and nulls", f"{EDGES}::test_unknown_keys_change_nothing", "openai_responses/null_deltas"),
    44: Row(
        "thinking removed by the service",
        f"{EDGES}::test_what_the_service_did_to_thinking_is_reported",
        "openai_responses/earlier_thinking_was_removed",
    ),
    45: Row(
        "a commentary",
        f"{EDGES}::test_a_commentary_is_set_apart",
        f"{REPLAY}::test_recorded_answers_survive_the_round_trip",
        "openai_responses/commentary_and_final_answer",
        reason="events know no interim text: a commentary is shown as text, set apart by a blank line",
    ),
    46: Row("sampling keys of OpenAI", NO_SAMPLING),
    47: Row("stored answers and references", f"{EDGES}::test_nothing_is_stored_or_referred_to"),
    48: Row("a signature in the last chunk", f"{EDGES}::test_a_signature_in_the_last_chunk_is_kept"),
    49: Row("pieces that meet", f"{EDGES}::test_signed_parts_keep_their_borders"),
    50: Row("calls under any reason", "google/thinking_then_tool", "google/unknown_reason"),
    51: Row(
        "parallel calls and their one signature",
        f"{REPLAY}::test_recorded_answers_survive_the_round_trip",
        f"{REPLAY}::test_a_conversation_becomes_what_is_sent",
        "google/thinking_then_tool",
    ),
    52: Row(
        "calls without a signature of ours",
        f"{REPLAY}::test_models_before_the_levels_get_no_stand_in",
        f"{REPLAY}::test_foreign_state_is_dropped_and_words_are_kept",
        f"{REPLAY}::test_a_conversation_becomes_what_is_sent",
        reason="nothing here writes calls of its own into a conversation; calls of other models and keys are proven",
    ),
    53: Row("words beside answers", f"{REPLAY}::test_a_conversation_becomes_what_is_sent"),
    54: Row("answers that are no objects", f"{EDGES}::test_an_answer_is_an_object"),
    55: Row("a blocked prompt", "google/prompt_blocked"),
    56: Row("two knobs", f"{EDGES}::test_one_knob_and_only_levels_that_the_model_has"),
    57: Row(
        "a paused answer",
        f"{EDGES}::test_a_paused_answer_is_gone_on_with_by_its_token",
        f"{REPLAY}::test_a_paused_answer_repeats_the_request_with_its_token",
        "google/continuation",
        "google/continuation_without_token",
    ),
    58: Row("thoughts are part of the output", "google/thinking_then_tool"),
    59: Row("a wait in the body", f"{EDGES}::test_the_wait_stands_in_the_body"),
    60: Row(
        "calls without ids",
        f"{REPLAY}::test_a_conversation_becomes_what_is_sent",
        f"{REPLAY}::test_recorded_answers_survive_the_round_trip",
        "google/calls_without_ids",
    ),
    61: Row("errors in a list", f"{FAILURES}::test_failures_are_classified", "google/error_in_a_list"),
    62: Row("ids and names that are repeated", "openai_chat/id_and_name_repeated"),
    63: Row(
        "calls without an index",
        f"{EDGES}::test_calls_are_told_apart_without_their_index",
        "openai_chat/gateway_chunks_without_index",
        "openai_chat/index_always_zero",
        "openai_chat/calls_without_ids",
        reason="which servers leave the index out is not known; every way of doing so that makes sense is met",
    ),
    64: Row("calls under any reason of chat completions", f"{EDGES}::test_calls_count_whatever_the_reason_says"),
    65: Row("chunks without choices", "openai_chat/null_and_empty_choices"),
    66: Row(
        "thinking that comes twice",
        f"{REPLAY}::test_recorded_answers_survive_the_round_trip",
        "openai_chat/both_reasoning_fields",
    ),
    67: Row(
        "DeepSeek demands its field",
        f"{REPLAY}::test_deepseek_wants_the_field_on_every_answer_with_calls",
        f"{EDGES}::test_only_deepseek_is_sent_a_field_it_has_not_given",
    ),
    68: Row(
        "details that share an index",
        f"{REPLAY}::test_recorded_answers_survive_the_round_trip",
        f"{REPLAY}::test_thinking_goes_to_nobody_but_who_gave_it",
        "openai_chat/openrouter_text_and_encrypted_share_an_index",
        reason="details of two models cannot be mixed: they go back only to the model that gave them",
    ),
    69: Row("an end without a reason", f"{EDGES}::test_an_end_without_a_reason_is_retried"),
    70: Row(
        "tags in the text",
        f"{EDGES}::test_tags_are_thinking_only_if_configured",
        "openai_chat/think_tags_split",
        reason="tags in tool arguments cannot be taken for thinking: the splitter is given the content alone",
    ),
    71: Row(
        "an answer of only thinking",
        f"{EDGES}::test_an_answer_of_only_thinking_names_the_parsers",
        f"{EDGES}::test_ordinary_answers_are_not_suspected",
        reason="whether the request had tools is not known where the answer is read; every request has them",
    ),
    72: Row("the two names of the output limit", "providers/test_chat_servers::test_the_limit_of_output_has_two_names"),
    73: Row("calls of an answer that was cut", f"{EDGES}::test_calls_of_an_answer_that_was_cut_do_not_run"),
}


def find_test(test: str) -> str:
    """Return the name of a test. Fails if there is none of this id."""
    place, _, name = test.partition("::")
    module = importlib.import_module(f"tests.{place.replace('/', '.')}")
    assert inspect.isfunction(getattr(module, name, None)), f"{test} does not exist"
    assert name.startswith("test_")
    return name


@pytest.mark.parametrize("number", range(1, 74))
def test_every_edge_is_proven_or_cannot_come_about(number: int) -> None:
    row = ROWS[number]
    assert row.proofs or row.reason
    for proof in row.proofs:
        if "::" in proof:
            find_test(proof)
        else:
            assert {(FOLDER.parent / f"{proof}{end}").exists() for end in (".sse", ".json")} == {True}, proof
    assert not row.reason or len(row.reason) > 20


def test_nothing_is_listed_that_is_no_edge() -> None:
    assert list(ROWS) == list(range(1, 74))
    assert len({row.title for row in ROWS.values()}) == len(ROWS)


def test_what_concerns_every_service_is_proven_for_each() -> None:
    tests = {name: value for name, value in vars(test_edges_of_every_service).items() if name.startswith("test_")}
    assert {f"{EVERY}::{name}" for name in tests} <= {test for row in ROWS.values() for test in row.proofs}
    # One edge belongs to one service alone; all others are proven for every one.
    others = [name for name, test in tests.items() if "where" not in inspect.signature(test).parameters]
    assert others == ["test_a_flat_error_ends_a_responses_stream"]


def test_a_missing_test_is_noticed() -> None:
    with pytest.raises(AssertionError, match="does not exist"):
        find_test("providers/test_sharp_edges::test_this_is_not_there")
