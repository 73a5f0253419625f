// The compaction engine: sorted inputs in memory become one sorted sequence of blocks in memory.
//
//   memory --> burst_issuer/read_return --> input: [queue] --> decoder --+
//              desc_walker                  input: [queue] --> decoder --+--> merger --> record_filter --> encoder --> packer
//              (checksums of all inputs)        ...                      |      values ----------------------^           |
//   memory <-- write_back <-----------------------------------------------------------------------------------------------+
//
// Every offer between units keeps the rule of AXI's channels: once valid it stays, unchanged, until it is taken.
// See docs/design/compaction-engine.md.
module compaction_ip #(
    parameter int unsigned NumInputs = 4
) (
    input  logic               clk_i,
    input  logic               rst_i,
    // registers: reads answer a cycle later
    input  cip_pkg::csr_req_t  csr_req_i,
    output cip_pkg::csr_data_t csr_data_o,
    // memory
    output cip_pkg::mem_req_t  mem_req_o,
    input  cip_pkg::mem_rsp_t  mem_rsp_i
);
  logic core_rst, running;
  cip_pkg::record_settings_t record_settings;
  cip_pkg::out_settings_t out_settings;
  cip_pkg::list_write_t list_write;
  cip_pkg::events_t events;
  cip_pkg::stalls_t stalls;

  // ---- Descriptors and reads.
  logic desc_req_valid, desc_req_ready, desc_rsp_valid;
  cip_pkg::desc_req_t desc_req;
  cip_pkg::desc_rsp_t desc_rsp;
  logic [NumInputs-1:0] block_ref_valid, block_ref_pop, word_taken, queue_write;
  cip_pkg::input_id_t block_select;
  cip_pkg::block_ref_t block_ref;
  logic walker_error_valid;
  cip_pkg::error_t walker_error;
  cip_desc_walker #(.NumInputs(NumInputs)) u_walker (
      .clk_i, .rst_i(core_rst), .running_i(running), .list_write_i(list_write),
      .desc_req_valid_o(desc_req_valid), .desc_req_ready_i(desc_req_ready), .desc_req_o(desc_req),
      .desc_rsp_valid_i(desc_rsp_valid), .desc_rsp_i(desc_rsp),
      .block_valid_o(block_ref_valid), .block_select_i(block_select), .block_o(block_ref),
      .block_pop_i(block_ref_pop),
      .block_found_o(events.block_found), .block_bytes_o(events.block_bytes),
      .error_valid_o(walker_error_valid), .error_o(walker_error)
  );

  logic issuer_idle, fetch_valid, fetch_ready;
  cip_pkg::fetch_t fetch;
  cip_burst_issuer #(.NumInputs(NumInputs)) u_issuer (
      .clk_i, .rst_i(core_rst), .halt_i(!running), .idle_o(issuer_idle),
      .desc_req_valid_i(desc_req_valid), .desc_req_ready_o(desc_req_ready), .desc_req_i(desc_req),
      .block_valid_i(block_ref_valid), .block_select_o(block_select), .block_i(block_ref),
      .block_pop_o(block_ref_pop), .word_taken_i(word_taken),
      .ar_valid_o(mem_req_o.ar_valid), .ar_ready_i(mem_rsp_i.ar_ready), .ar_o(mem_req_o.ar),
      .fetch_valid_o(fetch_valid), .fetch_ready_i(fetch_ready), .fetch_o(fetch)
  );

  logic return_idle, r_ready, return_error_valid;
  cip_pkg::word_t queue_data;
  cip_pkg::error_t return_error;
  cip_read_return #(.NumInputs(NumInputs)) u_return (
      .clk_i, .rst_i(core_rst), .fetch_valid_i(fetch_valid), .fetch_ready_o(fetch_ready), .fetch_i(fetch),
      .r_valid_i(mem_rsp_i.r_valid), .r_ready_o(r_ready), .r_data_i(mem_rsp_i.r_data), .r_error_i(mem_rsp_i.r_error),
      .desc_rsp_valid_o(desc_rsp_valid), .desc_rsp_o(desc_rsp),
      .queue_write_o(queue_write), .queue_data_o(queue_data),
      .idle_o(return_idle), .waiting_o(stalls.memory), .block_checked_o(events.block_checked),
      .error_valid_o(return_error_valid), .error_o(return_error)
  );
  assign mem_req_o.r_ready = r_ready;

  // ---- Inputs.
  cip_pkg::key_index_t key_index;
  logic [NumInputs-1:0] head_valid, head_pop, value_valid, value_pop, record_found, moving, input_error_valid;
  logic [NumInputs*cip_pkg::HeadWidth-1:0] heads;
  logic [NumInputs*cip_pkg::WordWidth-1:0] values;
  logic [NumInputs-1:0] input_error_is_key;
  for (genvar i = 0; i < NumInputs; i++) begin : gen_input
    cip_pkg::head_t head;
    cip_pkg::word_t value;
    cip_pkg::error_code_e code;
    cip_input u_input (
        .clk_i, .rst_i(core_rst), .write_i(queue_write[i]), .word_i(queue_data), .word_taken_o(word_taken[i]),
        .head_valid_o(head_valid[i]), .head_o(head), .key_index_i(key_index), .head_pop_i(head_pop[i]),
        .value_valid_o(value_valid[i]), .value_o(value), .value_pop_i(value_pop[i]),
        .record_found_o(record_found[i]), .moving_o(moving[i]),
        .error_valid_o(input_error_valid[i]), .error_code_o(code)
    );
    assign heads[cip_pkg::HeadWidth*i+:cip_pkg::HeadWidth]  = head;
    assign values[cip_pkg::WordWidth*i+:cip_pkg::WordWidth] = value;
    assign input_error_is_key[i] = code == cip_pkg::ErrKey;
  end

  // ---- Merge, filter, encode.
  logic record_ready, record_begin, merge_finished;
  cip_pkg::record_t record;
  cip_merger #(.NumInputs(NumInputs)) u_merger (
      .clk_i, .rst_i(core_rst), .head_valid_i(head_valid), .heads_i(heads), .key_index_o(key_index),
      .head_pop_o(head_pop), .record_ready_i(record_ready), .record_begin_o(record_begin), .record_o(record),
      .finished_o(merge_finished), .starved_o(stalls.head), .blocked_o(stalls.filter)
  );

  logic command_valid, command_ready, index_busy, filter_error_valid;
  cip_pkg::command_t command;
  cip_pkg::slot_addr_t key_addr, index_addr;
  cip_pkg::word_t key_bytes, index_bytes;
  cip_pkg::error_t filter_error;
  cip_record_filter u_filter (
      .clk_i, .rst_i(core_rst), .settings_i(record_settings),
      .record_ready_o(record_ready), .record_begin_i(record_begin), .record_i(record), .finished_i(merge_finished),
      .key_addr_i(key_addr), .key_bytes_o(key_bytes), .index_addr_i(index_addr), .index_bytes_o(index_bytes),
      .index_busy_i(index_busy), .command_valid_o(command_valid), .command_ready_i(command_ready),
      .command_o(command), .shadowed_o(events.shadowed), .vanished_o(events.vanished), .written_o(events.written),
      .error_valid_o(filter_error_valid), .error_o(filter_error)
  );

  logic chunk_valid, chunk_ready, block_valid, block_ready, encoder_finished;
  cip_pkg::chunk_t chunk;
  cip_pkg::block_t block;
  cip_pkg::addr_t bytes_written;
  cip_encoder #(.NumInputs(NumInputs)) u_encoder (
      .clk_i, .rst_i(core_rst), .command_valid_i(command_valid), .command_ready_o(command_ready),
      .command_i(command), .key_addr_o(key_addr), .key_bytes_i(key_bytes),
      .value_valid_i(value_valid), .values_i(values), .value_pop_o(value_pop),
      .chunk_valid_o(chunk_valid), .chunk_ready_i(chunk_ready), .chunk_o(chunk),
      .block_valid_o(block_valid), .block_ready_i(block_ready), .block_o(block),
      .finished_o(encoder_finished), .bytes_written_o(bytes_written), .idle_o(stalls.command),
      .waits_for_value_o(stalls.value)
  );

  // ---- Pack and write.
  cip_pkg::word_addr_t committed, read_position;
  cip_pkg::word_t read_data;
  logic read_enable, packer_idle;
  cip_packer u_packer (
      .clk_i, .rst_i(core_rst), .chunk_valid_i(chunk_valid), .chunk_ready_o(chunk_ready), .chunk_i(chunk),
      .committed_o(committed), .read_position_i(read_position), .read_enable_i(read_enable), .read_data_o(read_data),
      .idle_o(packer_idle), .full_o(stalls.write)
  );

  logic all_packed, write_idle, drained, w_valid, write_error_valid;
  cip_pkg::block_length_t blocks_written;
  cip_pkg::error_t write_error;
  assign all_packed = encoder_finished && packer_idle;
  cip_write_back u_write_back (
      .clk_i, .rst_i(core_rst), .halt_i(!running), .settings_i(out_settings),
      .committed_i(committed), .flush_i(all_packed), .read_position_o(read_position), .read_enable_o(read_enable),
      .read_data_i(read_data), .block_valid_i(block_valid), .block_ready_o(block_ready), .block_i(block),
      .index_addr_o(index_addr), .index_bytes_i(index_bytes), .index_busy_o(index_busy),
      .aw_valid_o(mem_req_o.aw_valid), .aw_ready_i(mem_rsp_i.aw_ready), .aw_o(mem_req_o.aw),
      .w_valid_o(w_valid), .w_ready_i(mem_rsp_i.w_ready), .w_data_o(mem_req_o.w_data), .w_last_o(mem_req_o.w_last),
      .b_valid_i(mem_rsp_i.b_valid), .b_error_i(mem_rsp_i.b_error),
      .idle_o(write_idle), .drained_o(drained), .blocks_written_o(blocks_written),
      .error_valid_o(write_error_valid), .error_o(write_error)
  );
  assign mem_req_o.w_valid = w_valid;

  // ---- Control, a cycle behind where nothing depends on it. Of several errors the one nearest to memory counts.
  logic input_error_valid_q, progress_q, memory_idle_q, work_finished_q, error_valid;
  cip_pkg::error_t input_error_q, error;
  always_ff @(posedge clk_i) begin
    input_error_valid_q <= !core_rst && input_error_valid != '0;
    for (int i = NumInputs - 1; i >= 0; i--) begin
      if (input_error_valid[i]) begin
        input_error_q.code <= input_error_is_key[i] ? cip_pkg::ErrKey : cip_pkg::ErrEntry;
        input_error_q.id   <= cip_pkg::InputIdWidth'(i);
      end
    end
    progress_q <= (mem_rsp_i.r_valid && r_ready) || (w_valid && mem_rsp_i.w_ready) || (chunk_valid && chunk_ready)
        || moving != '0 || record_begin || value_pop != '0;
    memory_idle_q   <= issuer_idle && return_idle && write_idle;
    work_finished_q <= !core_rst && all_packed && drained && issuer_idle && return_idle;
  end

  assign error_valid = walker_error_valid || return_error_valid || input_error_valid_q || filter_error_valid
      || write_error_valid;
  assign error = walker_error_valid ? walker_error : return_error_valid ? return_error
      : input_error_valid_q ? input_error_q : filter_error_valid ? filter_error : write_error;
  cip_control #(.NumInputs(NumInputs)) u_control (
      .clk_i, .rst_i, .csr_req_i, .csr_data_o, .record_settings_o(record_settings), .out_settings_o(out_settings), .list_write_o(list_write),
      .core_rst_o(core_rst), .running_o(running), .work_finished_i(work_finished_q), .memory_idle_i(memory_idle_q),
      .progress_i(progress_q), .error_valid_i(error_valid), .error_i(error), .events_i(events), .stalls_i(stalls),
      .records_found_i(record_found), .bytes_written_i(bytes_written), .blocks_written_i(blocks_written)
  );

`ifndef SYNTHESIS
  if (NumInputs < 1 || NumInputs > cip_pkg::NumInputsMax) $error("compaction_ip: 1 to 13 inputs");
  if ($bits(cip_pkg::key_word_t) != cip_pkg::KeyWordWidth || $bits(cip_pkg::head_t) != cip_pkg::HeadWidth
      || $bits(cip_pkg::block_ref_t) != cip_pkg::BlockRefWidth || $bits(cip_pkg::fetch_t) != cip_pkg::FetchWidth
      || $bits(cip_pkg::block_open_t) != cip_pkg::BlockOpenWidth
      || $bits(cip_pkg::entry_header_t) != cip_pkg::EntryHeaderWidth)
    $error("cip_pkg: a struct has another width than the constant beside it");

  // ---- Every offer inside stays until it is taken; what is taken was offered. (tb/machine.h watches the channels.)
  cip_handshake #(.Width($bits(desc_req))) u_desc_req_kept (
      .clk_i, .rst_i(core_rst || !running), .valid_i(desc_req_valid), .ready_i(desc_req_ready), .payload_i(desc_req)
  );
  cip_handshake #(.Width($bits(fetch))) u_fetch_kept (
      .clk_i, .rst_i(core_rst), .valid_i(fetch_valid), .ready_i(fetch_ready), .payload_i(fetch)
  );
  cip_handshake #(.Width($bits(command))) u_command_kept (
      .clk_i, .rst_i(core_rst), .valid_i(command_valid), .ready_i(command_ready), .payload_i(command)
  );
  cip_handshake #(.Width($bits(chunk))) u_chunk_kept (
      .clk_i, .rst_i(core_rst), .valid_i(chunk_valid), .ready_i(chunk_ready), .payload_i(chunk)
  );
  cip_handshake #(.Width($bits(block))) u_block_kept (
      .clk_i, .rst_i(core_rst), .valid_i(block_valid), .ready_i(block_ready), .payload_i(block)
  );
  for (genvar i = 0; i < NumInputs; i++) begin : gen_block_ref_kept
    cip_handshake u_kept (
        .clk_i, .rst_i(core_rst), .valid_i(block_ref_valid[i]), .ready_i(block_ref_pop[i]), .payload_i(1'b0)
    );
  end
  always_ff @(posedge clk_i) if (!core_rst) begin
    assert ((head_pop & ~head_valid) == '0) else $error("compaction_ip: a key was taken that was not there");
    assert ((block_ref_pop & ~block_ref_valid) == '0) else $error("compaction_ip: a block was taken that was not there");
    assert (!(record_begin && !record_ready)) else $error("compaction_ip: a record was begun that cannot be taken");
    assert (!(read_enable && read_position == committed)) else $error("compaction_ip: a word was read before it was whole");
  end
`endif
endmodule
