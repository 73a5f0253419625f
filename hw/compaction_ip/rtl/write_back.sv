// Writes what is packed, and one index entry per block, to memory in bursts within 128 bytes.
//
// The planner looks for something to write and sends its address; the sender follows with the data, so that the
// address of a burst goes out while the burst before it is still being sent. A burst is planned only when all its
// words are there, hence every burst begun can end, whatever happens to the job.
// Index entries are 128 bytes apart: {length, offset}, {user key length, entries}, trailer, user key.
module write_back (
    input  logic        clk,
    input  logic        reset,
    input  logic        halt,
    input  logic [31:0] out_base,
    input  logic [28:0] out_words_max,
    input  logic [31:0] index_base,
    input  logic [23:0] index_entries_max,
    // packed words
    input  logic [28:0] committed,
    input  logic        flush,
    output logic [28:0] read_position,
    output logic        read_enable,
    input  logic [63:0] read_data,
    // finished blocks
    input  logic        block_valid,
    output logic        block_ready,
    input  logic [31:0] block_offset,
    input  logic [24:0] block_length,
    input  logic [23:0] block_entries,
    input  logic        block_slot,
    input  logic [ 6:0] block_key_length,
    output logic [ 4:0] index_address,
    input  logic [67:0] index_word,
    output logic        index_busy,
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
    input  logic        b_error,
    // status
    output logic        idle,
    output logic        drained,
    output logic [23:0] blocks_written,
    output logic        error_valid,
    output logic [ 3:0] error_code
);
  localparam logic [3:0] ERROR_BUS = 4'd1, ERROR_SPACE = 4'd11;

  // ---- The index entry at hand: gathered word by word, then sent as one burst.
  localparam logic [1:0] EMPTY = 2'd0, GATHER = 2'd1, READY = 2'd2, SENDING = 2'd3;
  logic [1:0] entry;
  logic [63:0] entry_words[16];
  logic [3:0] entry_at, entry_length, key_words;
  logic entry_slot;
  logic [31:0] entry_offset;
  logic [24:0] entry_block_length;
  logic [23:0] entry_entries;
  logic [6:0] entry_key_length;
  logic [63:0] entry_word, index_lanes;

  assign block_ready = entry == EMPTY;
  assign index_busy = entry == GATHER || block_valid;
  assign key_words = entry_key_length == 7'd0 ? 4'd1 : 4'((entry_key_length + 7'd7) >> 3);
  // Word 2 is the trailer, which follows the key's words in the slot; word 3 + k is key word k.
  assign index_address = {entry_slot, entry_at == 4'd2 ? key_words : entry_at - 4'd3};
  always_comb begin
    for (int j = 0; j < 8; j++) index_lanes[8*j+:8] = index_word[4+8*(7-j)+:8];
    unique case (entry_at)
      4'd0: entry_word = {7'b0, entry_block_length, entry_offset};
      4'd1: entry_word = {25'b0, entry_key_length, 8'b0, entry_entries};
      4'd2: entry_word = ~index_word[67:4];
      default: entry_word = index_lanes;
    endcase
  end
  always_ff @(posedge clk) if (entry == GATHER) entry_words[entry_at] <= entry_word;

  // ---- The planner.
  logic [28:0] planned, available;
  logic [23:0] index_count;
  logic [4:0] to_border, burst;
  logic plan_data, plan_entry, plan_ready;
  logic no_space;
  assign available = committed - planned;
  assign to_border = 5'd16 - {1'b0, planned[3:0]};
  assign burst = available[28:5] == 24'd0 && available[4:0] < to_border ? available[4:0] : to_border;

  // The next burst, and the one being sent.
  logic next_valid, next_entry;
  logic [4:0] next_words;
  logic now_valid, now_entry;
  logic [4:0] now_left;
  logic load, fetch;
  logic [3:0] sent_entry_words;
  logic [5:0] unanswered;
  logic ready_to_plan;

  // Decided a cycle ahead, from registers.
  logic want_data;
  logic [4:0] want_words;
  assign plan_ready = !next_valid && !aw_valid && !halt && unanswered[5:4] == 2'd0;
  assign plan_entry = plan_ready && ready_to_plan && entry == READY;
  assign plan_data = plan_ready && ready_to_plan && entry != READY && want_data;
  assign no_space = plan_entry ? index_count >= index_entries_max : planned + {24'b0, want_words} > out_words_max;

  // ---- The sender: a word a cycle from the buffer's output register or the entry's words.
  logic sending_entry;
  logic [63:0] entry_out;
  logic out_valid, out_last, out_is_entry;
  assign fetch = now_valid && now_left != 5'd0 && (!out_valid || w_ready);
  assign load = next_valid && (!now_valid || (fetch && now_left == 5'd1));
  assign read_enable = fetch && !now_entry;
  assign sending_entry = fetch && now_entry;
  assign w_valid = out_valid;
  assign w_last = out_last;
  assign w_data = out_is_entry ? entry_out : read_data;
  always_ff @(posedge clk) if (sending_entry) entry_out <= entry_words[sent_entry_words];

  always_ff @(posedge clk) begin
    error_valid <= 1'b0;
    if (reset) begin
      entry         <= EMPTY;
      planned       <= 29'd0;
      index_count   <= 24'd0;
      read_position <= 29'd0;
      next_valid    <= 1'b0;
      now_valid     <= 1'b0;
      out_valid     <= 1'b0;
      aw_valid      <= 1'b0;
      unanswered    <= 6'd0;
      want_data     <= 1'b0;
      ready_to_plan <= 1'b0;
    end else begin
      // Index entries.
      unique case (entry)
        EMPTY: if (block_valid) begin
          entry              <= GATHER;
          entry_at           <= 4'd0;
          entry_slot         <= block_slot;
          entry_offset       <= block_offset;
          entry_block_length <= block_length;
          entry_entries      <= block_entries;
          entry_key_length   <= block_key_length;
        end
        GATHER: begin
          entry_at     <= entry_at + 4'd1;
          entry_length <= key_words + 4'd3;
          if (entry_at == key_words + 4'd2) entry <= READY;
        end
        READY: if (plan_entry && !no_space) entry <= SENDING;
        default: if (sending_entry && now_left == 5'd1) entry <= EMPTY;
      endcase

      // Plans.
      want_words    <= burst;
      want_data     <= available != 29'd0 && (flush || burst == to_border);
      ready_to_plan <= !plan_entry && !plan_data;
      if (aw_ready) aw_valid <= 1'b0;
      if (plan_entry || plan_data) begin
        if (no_space) begin
          error_valid <= 1'b1;
          error_code  <= ERROR_SPACE;
        end else begin
          next_valid        <= 1'b1;
          next_entry        <= plan_entry;
          next_words        <= plan_entry ? {1'b0, entry_length} : want_words;
          aw_valid          <= 1'b1;
          aw_address        <= plan_entry ? index_base + {1'b0, index_count, 7'b0} : out_base + {planned, 3'b0};
          aw_beats_less_one <= plan_entry ? entry_length - 4'd1 : 4'(want_words - 5'd1);
          if (plan_entry) index_count <= index_count + 24'd1;
          else planned <= planned + {24'b0, want_words};
        end
      end

      // Data.
      if (w_ready) out_valid <= 1'b0;
      if (fetch) begin
        out_valid    <= 1'b1;
        out_last     <= now_left == 5'd1;
        out_is_entry <= now_entry;
        now_left     <= now_left - 5'd1;
        if (now_left == 5'd1) now_valid <= 1'b0;
        if (now_entry) sent_entry_words <= sent_entry_words + 4'd1;
        else read_position <= read_position + 29'd1;
      end
      if (load) begin
        now_valid        <= 1'b1;
        now_entry        <= next_entry;
        now_left         <= next_words;
        next_valid       <= 1'b0;
        sent_entry_words <= 4'd0;
      end

      unanswered <= unanswered + {5'b0, plan_entry || plan_data} - {5'b0, b_valid};
      if (b_valid && b_error) begin
        error_valid <= 1'b1;
        error_code  <= ERROR_BUS;
      end
      if ((plan_entry || plan_data) && no_space) unanswered <= unanswered - {5'b0, b_valid};
    end
  end

  assign blocks_written = index_count;
  assign idle = !next_valid && !now_valid && !out_valid && !aw_valid && unanswered == 6'd0;
  assign drained = idle && entry == EMPTY && planned == committed;
endmodule
