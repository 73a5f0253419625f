// Writes what is packed, and one index entry per block, to memory in bursts within 128 bytes.
//
// The planner looks for something to write and sends its address; the sender follows with the data, so that the
// address of a burst goes out while the burst before it is still being sent. A burst is planned only when all its
// words are there, hence every burst begun can end, whatever happens to the job.
// Index entries are 128 bytes apart: {length, offset}, {user key length, entries}, trailer, user key.
module cip_write_back (
    input  logic                   clk_i,
    input  logic                   rst_i,
    input  logic                   halt_i,
    input  cip_pkg::out_settings_t settings_i,
    // packed words
    input  cip_pkg::word_addr_t    committed_i,
    input  logic                   flush_i,
    output cip_pkg::word_addr_t    read_position_o,
    output logic                   read_enable_o,
    input  cip_pkg::word_t         read_data_i,
    // finished blocks, and their last keys
    input  logic                   block_valid_i,
    output logic                   block_ready_o,
    input  cip_pkg::block_t        block_i,
    output cip_pkg::slot_addr_t    index_addr_o,
    input  cip_pkg::word_t         index_bytes_i,
    output logic                   index_busy_o,
    // write channels
    output logic                   aw_valid_o,
    input  logic                   aw_ready_i,
    output cip_pkg::burst_t        aw_o,
    output logic                   w_valid_o,
    input  logic                   w_ready_i,
    output cip_pkg::word_t         w_data_o,
    output logic                   w_last_o,
    input  logic                   b_valid_i,
    input  logic                   b_error_i,
    // status
    output logic                   idle_o,
    output logic                   drained_o,
    output cip_pkg::block_length_t blocks_written_o,
    output logic                   error_valid_o,
    output cip_pkg::error_t        error_o
);
  // ---- The index entry at hand: gathered word by word, then sent as one burst.
  localparam int unsigned IndexEntryAlign = 7;  // entries are 2**7 bytes apart
  localparam logic [cip_pkg::BeatWidth-1:0] TrailerAt = 4'd2, KeyAt = 4'd3;
  typedef enum logic [1:0] {StEmpty, StGather, StReady, StSending} entry_state_e;
  entry_state_e entry_q, entry_d;
  logic [cip_pkg::WordWidth-1:0] entry_words[2**cip_pkg::BeatWidth];
  cip_pkg::beat_t entry_at_q, entry_length_q, sent_entry_words_q;
  cip_pkg::key_index_t key_words;
  cip_pkg::block_t block_q;
  cip_pkg::word_t entry_word;

  assign block_ready_o = entry_q == StEmpty;
  assign index_busy_o  = entry_q == StGather || block_valid_i;
  assign key_words     = cip_pkg::key_words(block_q.user_length);
  // The trailer follows the key's words in the slot.
  assign index_addr_o  = {block_q.slot, entry_at_q == TrailerAt ? key_words : entry_at_q - KeyAt};
  always_comb begin
    unique case (entry_at_q)
      4'd0:      entry_word = {7'b0, block_q.length, block_q.offset};
      4'd1:      entry_word = {25'b0, block_q.user_length, 8'b0, block_q.entries};
      TrailerAt: entry_word = ~index_bytes_i;
      default:   entry_word = cip_pkg::reversed(index_bytes_i);
    endcase
  end
  always_ff @(posedge clk_i) if (entry_q == StGather) entry_words[entry_at_q] <= entry_word;

  // ---- The planner. What is wanted is decided a cycle ahead, from registers.
  cip_pkg::word_addr_t planned_q, available, read_position_q;
  cip_pkg::block_length_t index_count_q;
  cip_pkg::burst_count_t to_border, burst, want_words_q;
  logic want_data_q, ready_to_plan_q;
  logic plan_ready, plan_data, plan_entry, plan, no_space;
  logic [5:0] unanswered_q;
  logic aw_valid_q;
  cip_pkg::burst_t aw_q;

  assign available = committed_i - planned_q;
  assign to_border = cip_pkg::BurstWords - {1'b0, planned_q[cip_pkg::BeatWidth-1:0]};
  assign burst     = available[28:5] == '0 && available[4:0] < to_border ? available[4:0] : to_border;

  // The next burst, and the one being sent.
  logic next_valid_q, next_entry_q, now_valid_q, now_entry_q;
  cip_pkg::burst_count_t next_words_q, now_left_q;
  logic load, fetch, fetch_last;

  // At most 15 bursts are unanswered when one more is planned.
  assign plan_ready = !next_valid_q && !aw_valid_q && !halt_i && unanswered_q[5:4] == '0;
  assign plan_entry = plan_ready && ready_to_plan_q && entry_q == StReady;
  assign plan_data  = plan_ready && ready_to_plan_q && entry_q != StReady && want_data_q;
  assign plan       = plan_entry || plan_data;
  assign no_space   = plan_entry ? index_count_q >= settings_i.index_entries_max
      : planned_q + {24'b0, want_words_q} > settings_i.words_max;

  // ---- The sender: a word a cycle from the buffer's output register or the entry's words.
  logic sending_entry, out_valid_q, out_last_q, out_is_entry_q;
  cip_pkg::word_t entry_out_q;
  assign fetch         = now_valid_q && now_left_q != '0 && (!out_valid_q || w_ready_i);
  assign fetch_last    = fetch && now_left_q == 5'd1;
  assign load          = next_valid_q && (!now_valid_q || fetch_last);
  assign sending_entry = fetch && now_entry_q;
  always_ff @(posedge clk_i) if (sending_entry) entry_out_q <= entry_words[sent_entry_words_q];

  assign read_position_o = read_position_q;
  assign read_enable_o   = fetch && !now_entry_q;
  assign aw_valid_o      = aw_valid_q;
  assign aw_o            = aw_q;
  assign w_valid_o       = out_valid_q;
  assign w_last_o        = out_last_q;
  assign w_data_o        = out_is_entry_q ? entry_out_q : read_data_i;

  always_comb begin
    entry_d = entry_q;
    unique case (entry_q)
      StEmpty:  if (block_valid_i) entry_d = StGather;
      StGather: if (entry_at_q == key_words + 4'd2) entry_d = StReady;
      StReady:  if (plan_entry && !no_space) entry_d = StSending;
      default:  if (sending_entry && fetch_last) entry_d = StEmpty;
    endcase
  end

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      entry_q         <= StEmpty;
      planned_q       <= '0;
      index_count_q   <= '0;
      read_position_q <= '0;
      next_valid_q    <= 1'b0;
      now_valid_q     <= 1'b0;
      out_valid_q     <= 1'b0;
      aw_valid_q      <= 1'b0;
      unanswered_q    <= '0;
      want_data_q     <= 1'b0;
      ready_to_plan_q <= 1'b0;
    end else begin
      entry_q         <= entry_d;
      want_data_q     <= available != '0 && (flush_i || burst == to_border);
      ready_to_plan_q <= !plan;
      unanswered_q    <= unanswered_q + 6'(plan && !no_space) - {5'b0, b_valid_i};
      if (aw_ready_i) aw_valid_q <= 1'b0;
      if (w_ready_i) out_valid_q <= 1'b0;
      if (plan && !no_space) begin
        next_valid_q <= 1'b1;
        aw_valid_q   <= 1'b1;
        if (plan_entry) index_count_q <= index_count_q + 24'd1;
        else planned_q <= planned_q + {24'b0, want_words_q};
      end
      if (fetch) out_valid_q <= 1'b1;
      if (fetch_last) now_valid_q <= 1'b0;
      if (read_enable_o) read_position_q <= read_position_q + 29'd1;
      if (load) begin
        now_valid_q  <= 1'b1;
        next_valid_q <= 1'b0;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    // Index entries.
    if (entry_q == StEmpty) begin
      entry_at_q <= '0;
      block_q    <= block_i;
    end
    if (entry_q == StGather) begin
      entry_at_q     <= entry_at_q + 4'd1;
      entry_length_q <= key_words + KeyAt;
    end
    // Plans.
    want_words_q <= burst;
    if (plan) begin
      next_entry_q        <= plan_entry;
      next_words_q        <= plan_entry ? {1'b0, entry_length_q} : want_words_q;
      aw_q.addr           <= plan_entry ? settings_i.index_base + {1'b0, index_count_q, {IndexEntryAlign{1'b0}}}
          : settings_i.base + {planned_q, 3'b0};
      aw_q.beats_less_one <= plan_entry ? entry_length_q - 4'd1 : cip_pkg::BeatWidth'(want_words_q - 5'd1);
    end
    // Data.
    if (fetch) begin
      out_last_q     <= now_left_q == 5'd1;
      out_is_entry_q <= now_entry_q;
      now_left_q     <= now_left_q - 5'd1;
      if (now_entry_q) sent_entry_words_q <= sent_entry_words_q + 4'd1;
    end
    if (load) begin
      now_entry_q        <= next_entry_q;
      now_left_q         <= next_words_q;
      sent_entry_words_q <= '0;
    end
  end

  logic error_valid_q;
  cip_pkg::error_code_e error_code_q;
  always_ff @(posedge clk_i) begin
    error_valid_q <= !rst_i && ((plan && no_space) || (b_valid_i && b_error_i));
    error_code_q  <= b_valid_i && b_error_i ? cip_pkg::ErrBus : cip_pkg::ErrSpace;
  end
  assign error_valid_o = error_valid_q;
  assign error_o.code  = error_code_q;
  assign error_o.id    = cip_pkg::NoInput;

  assign blocks_written_o = index_count_q;
  assign idle_o           = !next_valid_q && !now_valid_q && !out_valid_q && !aw_valid_q && unanswered_q == '0;
  assign drained_o        = idle_o && entry_q == StEmpty && planned_q == committed_i;
endmodule
