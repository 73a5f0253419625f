// The compaction engine: N sorted inputs in memory become one sorted sequence of blocks in memory.
//
//   memory --> burst_issuer/read_return --> [queue] --> decoder --+
//              desc_walker                  [queue] --> decoder --+--> merger --> record_filter --> encoder --> packer
//              (checksums of all inputs)      ...  N of them    --+       values ------------------^              |
//   memory <-- write_back <-------------------------------------------------------------------------------------+
//
// Channels follow AXI's rules (valid waits for ready, bursts of up to 16 words of eight bytes that never cross 128
// bytes); answers to reads come in order. See docs/design/compaction-engine.md.
module compaction_ip #(
    parameter int N = 4
) (
    input  logic        clk,
    input  logic        reset,
    // registers
    input  logic        csr_write,
    input  logic [ 7:0] csr_address,
    input  logic [31:0] csr_write_data,
    output logic [31:0] csr_read_data,
    // read channels
    output logic        ar_valid,
    input  logic        ar_ready,
    output logic [31:0] ar_address,
    output logic [ 3:0] ar_beats_less_one,
    input  logic        r_valid,
    output logic        r_ready,
    input  logic [63:0] r_data,
    input  logic        r_error,
    // write channels
    output logic        aw_valid,
    input  logic        aw_ready,
    output logic [31:0] aw_address,
    output logic [ 3:0] aw_beats_less_one,
    output logic        w_valid,
    input  logic        w_ready,
    output logic [63:0] w_data,
    output logic        w_last,
    input  logic        b_valid,
    input  logic        b_error
);
`ifndef SYNTHESIS
  if (N < 1 || N > 13) $error("compaction_ip: 1 to 13 inputs");
`endif

  logic core_reset, running;
  logic [55:0] snapshot;
  logic bottom;
  logic [6:0] restart_interval;
  logic [23:0] block_bytes, index_entries_max;
  logic [31:0] out_base, index_base;
  logic [28:0] out_words_max;
  logic list_write, list_is_count;
  logic [3:0] list_input;
  logic [31:0] list_data;

  // ---- Descriptors and reads.
  logic request_valid, request_ready, request_is_table;
  logic [28:0] request_word;
  logic answer_valid, answer_last, answer_crc_good;
  logic [63:0] answer_data;
  logic [N-1:0] block_queued, block_taken, word_taken;
  logic [3:0] block_select;
  logic [31:0] block_address;
  logic [23:0] block_length_in;
  logic block_end;
  logic block_found;
  logic [24:0] block_found_bytes;
  logic walker_error;
  logic [3:0] walker_code, walker_input;

  desc_walker #(.N(N)) walker (
      .clk, .reset(core_reset), .running, .list_write, .list_input, .list_is_count, .list_data,
      .request_valid, .request_ready, .request_word, .request_is_table,
      .answer_valid, .answer_data, .answer_last, .answer_crc_good,
      .queue_valid(block_queued), .queue_select(block_select), .queue_address(block_address),
      .queue_length(block_length_in), .queue_end(block_end), .queue_pop(block_taken),
      .block_found, .block_bytes(block_found_bytes),
      .error_valid(walker_error), .error_code(walker_code), .error_input(walker_input)
  );

  logic issuer_idle, asked_valid, asked_ready;
  logic [39:0] asked;
  burst_issuer #(.N(N)) issuer (
      .clk, .reset(core_reset), .halt(!running), .idle(issuer_idle),
      .request_valid, .request_ready, .request_word, .request_is_table,
      .queue_valid(block_queued), .queue_select(block_select), .queue_address(block_address),
      .queue_length(block_length_in), .queue_end(block_end), .queue_pop(block_taken), .word_taken,
      .ar_valid, .ar_ready, .ar_address, .ar_beats_less_one, .asked_valid, .asked, .asked_ready
  );

  logic [N-1:0] queue_write;
  logic [63:0] queue_data;
  logic return_idle, return_waiting, block_checked, return_error;
  logic [3:0] return_code, return_input;
  read_return #(.N(N)) returned (
      .clk, .reset(core_reset), .asked_valid, .asked, .asked_ready, .r_valid, .r_ready, .r_data, .r_error,
      .answer_valid, .answer_data, .answer_last, .answer_crc_good, .queue_write, .queue_data,
      .idle(return_idle), .waiting(return_waiting), .block_checked,
      .error_valid(return_error), .error_code(return_code), .error_input(return_input)
  );

  // ---- Inputs.
  logic [N-1:0] key_ready, exhausted, key_pop, value_valid, value_pop, record_found, moving, decoder_error;
  logic [3:0] key_index;
  logic [N*68-1:0] key_words;
  logic [N*21-1:0] value_lengths;
  logic [N*64-1:0] value_words;
  logic [N*4-1:0] decoder_codes;
  for (genvar i = 0; i < N; i++) begin : g_input
    logic queue_valid, queue_full, value_full, value_write;
    logic [63:0] queue_word, value_word;
    word_fifo raw (
        .clk, .reset(core_reset), .write(queue_write[i]), .write_data(queue_data), .full(queue_full),
        .valid(queue_valid), .data(queue_word), .pop(word_taken[i])
    );
    decoder decode (
        .clk, .reset(core_reset), .in_valid(queue_valid), .in_data(queue_word), .in_pop(word_taken[i]),
        .key_ready(key_ready[i]), .exhausted(exhausted[i]), .key_index, .key_word(key_words[68*i+:68]),
        .value_length(value_lengths[21*i+:21]), .key_pop(key_pop[i]),
        .value_full, .value_write, .value_data(value_word),
        .record_found(record_found[i]), .moving(moving[i]),
        .error_valid(decoder_error[i]), .error_code(decoder_codes[4*i+:4])
    );
    word_fifo values (
        .clk, .reset(core_reset), .write(value_write), .write_data(value_word), .full(value_full),
        .valid(value_valid[i]), .data(value_words[64*i+:64]), .pop(value_pop[i])
    );
  `ifndef SYNTHESIS
  // The issuer asks only for what fits.
    always_ff @(posedge clk) if (!core_reset) begin
      assert (!(queue_full && queue_write[i])) else $error("compaction_ip: more words than were asked for");
    end
`endif
  end

  // ---- Merge, filter, encode.
  logic record_ready, record_begin, key_valid, key_is_trailer, merge_finished, starved, blocked;
  logic [67:0] key_word, write_key_word, index_word;
  logic [3:0] source;
  logic [20:0] value_length;
  merger #(.N(N)) merge (
      .clk, .reset(core_reset), .key_ready, .exhausted, .key_index, .key_words, .value_lengths, .key_pop,
      .record_ready, .record_begin, .word_valid(key_valid), .word(key_word), .word_is_trailer(key_is_trailer),
      .source, .value_length, .finished(merge_finished), .starved, .blocked
  );

  logic command_valid, command_ready, command_drop, command_record, command_cut, command_first, command_restart;
  logic command_slot, index_busy, dropped_shadowed, dropped_vanished, written, filter_error;
  logic [3:0] command_source, filter_code;
  logic [4:0] key_address, index_address;
  logic [6:0] command_shared, command_user_length, command_rest_key;
  logic [2:0] command_header_bytes;
  logic [3:0] command_head_bytes, command_head_key, command_next_key;
  logic [20:0] command_value_length;
  logic [23:0] command_offset, command_entries;
  logic [24:0] command_block_length;
  record_filter filter (
      .clk, .reset(core_reset), .snapshot, .bottom, .restart_interval, .block_bytes,
      .record_ready, .record_begin, .word_valid(key_valid), .word(key_word), .word_is_trailer(key_is_trailer),
      .source, .value_length, .finished(merge_finished),
      .key_address, .key_word(write_key_word), .index_address, .index_word,
      .command_valid, .command_ready, .index_busy, .command_drop, .command_record, .command_cut, .command_first,
      .command_restart, .command_slot, .command_source, .command_shared, .command_user_length,
      .command_header_bytes, .command_head_bytes, .command_head_key, .command_next_key, .command_rest_key,
      .command_value_length, .command_offset, .command_block_length, .command_entries,
      .dropped_shadowed, .dropped_vanished, .written, .error_valid(filter_error), .error_code(filter_code)
  );

  logic chunk_ready, chunk_valid, chunk_begins, chunk_ends, chunk_flush;
  logic [63:0] chunk;
  logic [3:0] chunk_bytes;
  logic block_valid, block_ready, block_slot, encoder_finished, encoder_idle, waits_for_value;
  logic [31:0] block_offset, bytes_written;
  logic [24:0] block_length;
  logic [23:0] block_entries;
  logic [6:0] block_key_length;
  encoder #(.N(N)) encode (
      .clk, .reset(core_reset), .command_valid, .command_ready, .command_drop, .command_record, .command_cut,
      .command_first, .command_restart, .command_slot, .command_source, .command_shared, .command_user_length,
      .command_header_bytes, .command_head_bytes, .command_head_key, .command_next_key, .command_rest_key,
      .command_value_length, .command_offset, .command_block_length, .command_entries,
      .key_address, .key_word(write_key_word), .value_valid, .value_words, .value_pop,
      .chunk_ready, .chunk_valid, .chunk, .chunk_bytes, .chunk_begins, .chunk_ends, .chunk_flush,
      .block_valid, .block_ready, .block_offset, .block_length, .block_entries, .block_slot, .block_key_length,
      .finished(encoder_finished), .bytes_written, .idle(encoder_idle), .waits_for_value
  );

  // ---- Pack and write.
  logic [28:0] committed, read_position;
  logic read_enable, packer_idle, buffer_full;
  logic [63:0] read_data;
  packer pack (
      .clk, .reset(core_reset), .chunk_valid, .chunk_ready, .chunk, .chunk_bytes, .chunk_begins, .chunk_ends,
      .chunk_flush, .committed, .read_position, .read_enable, .read_data, .idle(packer_idle), .buffer_full
  );

  logic all_packed, write_idle, drained, write_error;
  logic [3:0] write_code;
  logic [23:0] blocks_written;
  assign all_packed = encoder_finished && packer_idle;
  write_back writer (
      .clk, .reset(core_reset), .halt(!running), .out_base, .out_words_max, .index_base, .index_entries_max,
      .committed, .flush(all_packed), .read_position, .read_enable, .read_data,
      .block_valid, .block_ready, .block_offset, .block_length, .block_entries, .block_slot, .block_key_length,
      .index_address, .index_word, .index_busy,
      .aw_valid, .aw_ready, .aw_address, .aw_beats_less_one, .w_valid, .w_ready, .w_data, .w_last,
      .b_valid, .b_error, .idle(write_idle), .drained, .blocks_written,
      .error_valid(write_error), .error_code(write_code)
  );

`ifndef SYNTHESIS
  // ---- Every offer inside stays until it is taken; what is taken was offered. (tb/machine.h watches the channels.)
  handshake #(.WIDTH(30)) request_kept (
      .clk, .reset(core_reset || !running), .valid(request_valid), .ready(request_ready),
      .payload({request_word, request_is_table})
  );
  handshake #(.WIDTH(40)) asked_kept (
      .clk, .reset(core_reset), .valid(asked_valid), .ready(asked_ready), .payload(asked)
  );
  handshake #(.WIDTH(24 + 25 + 24 + 21 + 7 * 3 + 4 * 4 + 3 + 6)) command_kept (
      .clk, .reset(core_reset), .valid(command_valid), .ready(command_ready),
      .payload({command_offset, command_block_length, command_entries, command_value_length, command_shared,
                command_user_length, command_rest_key, command_source, command_head_bytes, command_head_key,
                command_next_key, command_header_bytes, command_drop, command_record, command_cut, command_first,
                command_restart, command_slot})
  );
  handshake #(.WIDTH(64 + 4 + 3)) chunk_kept (
      .clk, .reset(core_reset), .valid(chunk_valid), .ready(chunk_ready),
      .payload({chunk, chunk_bytes, chunk_begins, chunk_ends, chunk_flush})
  );
  handshake #(.WIDTH(32 + 25 + 24 + 1 + 7)) block_kept (
      .clk, .reset(core_reset), .valid(block_valid), .ready(block_ready),
      .payload({block_offset, block_length, block_entries, block_slot, block_key_length})
  );
  for (genvar i = 0; i < N; i++) begin : g_offer
    handshake key_kept (.clk, .reset(core_reset), .valid(key_ready[i]), .ready(key_pop[i]), .payload(1'b0));
    handshake block_queue_kept (
        .clk, .reset(core_reset), .valid(block_queued[i]), .ready(block_taken[i]), .payload(1'b0)
    );
  end
  always_ff @(posedge clk) if (!core_reset) begin
    assert ((key_pop & ~key_ready) == '0) else $error("compaction_ip: a key was taken that was not there");
    assert ((block_taken & ~block_queued) == '0) else $error("compaction_ip: a block was taken that was not there");
    assert (!(record_begin && !record_ready)) else $error("compaction_ip: a record was begun that nobody takes");
    assert (!(read_enable && read_position == committed)) else $error("compaction_ip: a word was read before it was whole");
  end
`endif

  // ---- Control.
  logic [3:0] decoder_code, decoder_input;
  logic any_decoder_error, progress, work_finished, memory_idle;
  always_ff @(posedge clk) begin
    any_decoder_error <= !core_reset && decoder_error != '0;
    decoder_code      <= 4'd0;
    decoder_input     <= 4'd0;
    for (int i = N - 1; i >= 0; i--)
      if (decoder_error[i]) begin
        decoder_code  <= decoder_codes[4*i+:4];
        decoder_input <= 4'(i);
      end
    progress      <= (r_valid && r_ready) || (w_valid && w_ready) || (chunk_valid && chunk_ready) || moving != '0
        || record_begin || value_pop != '0;
    memory_idle   <= issuer_idle && return_idle && write_idle;
    work_finished <= !core_reset && all_packed && drained && issuer_idle && return_idle;
  end

  control #(.N(N)) controller (
      .clk, .reset, .csr_write, .csr_address, .csr_write_data, .csr_read_data,
      .snapshot, .bottom, .restart_interval, .block_bytes, .out_base, .out_words_max, .index_base,
      .index_entries_max, .list_write, .list_input, .list_is_count, .list_data,
      .core_reset, .running, .work_finished, .memory_idle, .progress,
      .errors({walker_error, return_error, any_decoder_error, filter_error, write_error}),
      .error_details({walker_code, walker_input, return_code, return_input, decoder_code, decoder_input, filter_code,
                      source, write_code, 4'd15}),
      .count_block(block_found), .count_block_bytes(block_found_bytes), .count_records(record_found),
      .count_shadowed(dropped_shadowed), .count_vanished(dropped_vanished), .count_written(written),
      .count_checked(block_checked), .bytes_written, .blocks_written,
      .stall_memory(return_waiting), .stall_head(starved), .stall_filter(blocked),
      .stall_value(waits_for_value), .stall_command(encoder_idle), .stall_write(buffer_full)
  );
endmodule
